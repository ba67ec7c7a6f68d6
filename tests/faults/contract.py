"""What holds whatever is broken: an answer soon, the one that the limit says, and never an error."""

import contextlib
import statistics
from typing import ClassVar

import pytest

from tests.faults.outages import LOOK, RECOVERY, Outage, watch, whole_seconds
from tests.faults.site import QUOTA

#: Seconds: half of one is what the app may take, and the machine has other things to do.
LONGEST = 1.5
USUAL = 0.1

every_kind = pytest.mark.parametrize("kind", ["process", "http"])


class OutageContract:
    """While it is broken."""

    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls) -> Outage:
        """Return what was seen of it."""
        raise NotImplementedError

    def test_nobody_is_told_of_an_error(self, outage):
        assert {each.status for each in outage.answers} <= {200, 429}

    @every_kind
    def test_who_asks_is_answered_soon(self, outage, kind):
        answers = [each for each in outage.answers if each.caller.startswith(kind)]
        told = outage.told("total", kind)
        assert {each.caller for each in told} == {each.caller for each in answers}
        assert max(each.took for each in answers) < LONGEST
        assert statistics.median(each.took for each in told) < USUAL

    @every_kind
    def test_limit_that_allows_lets_all_pass(self, outage, kind):
        assert {each.status for each in outage.told("allow", kind)} == {200}

    def test_status_page_is_there(self, outage):
        assert {each.status for each in outage.of("status", "http")} == {200}


class FaultContract(OutageContract):
    """And when it was mended."""

    #: The limits that are decided by their counters again, or all the time.
    counted: ClassVar[list[str]] = ["allow"]

    @classmethod
    def fault(cls, server) -> contextlib.AbstractContextManager[None]:
        """Break the server for a block."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls, server, answers) -> Outage:
        return watch(answers, cls.fault(server), look=RECOVERY + LOOK)

    @every_kind
    def test_quota_is_kept_two_seconds_after_it_was_mended(self, outage, kind):
        for limit in self.counted:
            assert_kept(outage, limit, kind, outage.recovered, outage.ended)


def assert_kept(outage, limit, kind, start, end):
    """Check that the callers of a kind had together, in each second, what the limit allows and no more."""
    passed = [each for each in outage.of(limit, kind) if each.status == 200]
    assert all(each.at for each in passed if start <= each.start <= end)
    for second in whole_seconds(start, end):
        assert 1 <= sum(int(each.at) == second for each in passed) <= QUOTA
