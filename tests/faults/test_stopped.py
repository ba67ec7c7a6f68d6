"""A server that takes connections and questions, and never answers."""

from tests.faults.contract import FaultContract


class TestStopped(FaultContract):
    @classmethod
    def fault(cls, server):
        return server.stopped()
