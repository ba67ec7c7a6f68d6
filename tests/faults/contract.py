"""What holds whatever is broken: an answer soon, the one that the limit says, and never an error."""

import contextlib
import json
import statistics
from typing import ClassVar

import pytest

from tests.faults.outages import LOOK, RECOVERY, Outage, watch, whole_seconds
from tests.faults.site import ANSWERS, QUOTA, UNLIMITED

#: Seconds: the app may take one, where the machine has nothing else to do.
LONGEST = 1.5
USUAL = 0.1

#: How many processes each kind of callers has.
PROCESSES = 4

every_kind = pytest.mark.parametrize("kind", ["process", "http"])


class OutageContract:
    """While it is broken."""

    #: What a limit that lets calls pass says: 200, but where it is only locked.
    allows: ClassVar[int] = 200

    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls) -> Outage:
        """Return what was seen of it."""
        raise NotImplementedError

    def test_nobody_is_told_of_an_error(self, outage):
        assert {each.status for each in outage.answers} <= {200, 429, 503}

    @every_kind
    def test_who_asks_is_answered_soon(self, outage, kind):
        assert_soon(outage, kind)
        told = [each for limit in ANSWERS for each in outage.told(limit, kind)]
        assert statistics.median(each.took for each in told) < USUAL

    @every_kind
    def test_limit_that_allows_lets_all_pass(self, outage, kind):
        assert {each.status for each in outage.told("allow", kind)} == {self.allows}

    @every_kind
    def test_limit_that_denies_lets_nobody_pass(self, outage, kind):
        assert {each.status for each in outage.told("deny", kind)} == {503}

    def test_denial_is_a_problem_document_that_says_when_to_come_back(self, outage):
        for answer in outage.told("deny", "http"):
            assert answer.fields["content-type"] == "application/problem+json"
            assert int(answer.fields["retry-after"]) >= 1
            assert json.loads(answer.body)["status"] == 503

    @every_kind
    def test_limit_that_goes_on_locally_is_kept_by_each_process(self, outage, kind):
        told = outage.told("local", kind)
        assert 200 in {each.status for each in told} <= {200, 429}
        for second in whole_seconds(outage.began, outage.mending):
            passed = sum(each.status == 200 and int(each.at) == second for each in told)
            assert passed <= PROCESSES * QUOTA

    def test_status_page_is_there(self, outage):
        assert {each.status for each in outage.of("status", "http")} == {200}


class FaultContract(OutageContract):
    """And when it was mended."""

    @classmethod
    def fault(cls, server) -> contextlib.AbstractContextManager[None]:
        """Break the server for a block."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls, server, answers) -> Outage:
        return watch(answers, cls.fault(server), look=RECOVERY + LOOK)

    @pytest.mark.parametrize("limit", ANSWERS)
    @every_kind
    def test_quota_is_kept_two_seconds_after_it_was_mended(self, outage, kind, limit):
        assert_kept(outage, limit, kind, outage.recovered, outage.ended)


def assert_soon(outage, kind):
    """Check that all of the callers of a kind were told something, and nobody waited for long."""
    answers = [each for each in outage.answers if each.caller.startswith(kind)]
    asked = {each.caller for each in answers if outage.began <= each.start <= outage.mending}
    assert asked == {each.caller for each in answers}
    slowest = max(answers, key=lambda each: each.took)
    busy = max(each.took for each in outage.of(UNLIMITED, kind))
    assert slowest.took < LONGEST + 2 * busy, slowest


def assert_kept(outage, limit, kind, start, end):
    """Check that the callers of a kind had together, in each second, what the limit allows and no more."""
    passed = [each for each in outage.of(limit, kind) if each.status == 200]
    assert all(each.at for each in passed if start <= each.start <= end)
    for second in whole_seconds(start, end):
        assert 1 <= sum(int(each.at) == second for each in passed) <= QUOTA
