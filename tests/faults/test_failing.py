"""A server that says at once that it cannot count."""

import time

from tests.faults.contract import FaultContract
from tests.faults.outages import RECOVERY


class TestKilled(FaultContract):
    @classmethod
    def fault(cls, server):
        return server.killed()


class TestReadOnly(FaultContract):
    @classmethod
    def fault(cls, server):
        return server.read_only()


class TestWithoutTable(FaultContract):
    @classmethod
    def fault(cls, server):
        return server.without_table()


def test_what_was_counted_a_second_before_the_server_was_killed_stays(server, answers):
    total = "SELECT sum(count) FROM ratelimit_app_counter WHERE ratelimit_app_counter.key LIKE 'total@%'"
    (before,) = server.execute(total)[0]
    time.sleep(1.1)  # what was not synced is written by then
    with server.killed():
        pass
    time.sleep(RECOVERY)  # for the test that comes next
    assert server.execute(total)[0][0] >= before > 0
