"""Somebody who has left a transaction open, and what it has locked."""

import pytest

from tests.faults.contract import FaultContract, assert_kept, assert_soon, every_kind
from tests.faults.outages import watch
from tests.faults.site import ANSWERS


class TestTableLocked(FaultContract):
    allows = 503

    @classmethod
    def fault(cls, server):
        return server.table_locked()


class TestRowLocked:
    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls, server, answers):
        return watch(answers, server.row_locked("total"), look=0.5)

    @every_kind
    def test_who_asks_is_answered_soon(self, outage, kind):
        assert_soon(outage, kind)

    @every_kind
    def test_who_meets_the_lock_is_not_let_through(self, outage, kind):
        assert {each.status for each in outage.told("total", kind)} == {503}

    @pytest.mark.parametrize("limit", ANSWERS)
    @every_kind
    def test_all_others_are_counted_all_the_time(self, outage, kind, limit):
        assert_kept(outage, limit, kind, outage.began, outage.ended)
