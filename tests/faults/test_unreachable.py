"""A server that is not there when the site starts."""

import time

import pytest

from tests.faults.callers import asking
from tests.faults.contract import OutageContract
from tests.faults.outages import Outage
from tests.faults.servers import free_port, silent_port


def outage_at(port, site, folder):
    """Start callers whose counters are on that port, and listen to them for a while."""
    databases = site["DATABASES"]
    elsewhere = {**databases, "ratelimit": {**databases["ratelimit"], "PORT": str(port)}}
    with asking({**site, "DATABASES": elsewhere}, folder, number=2) as answers:
        began = time.time()  # all have had their first answer, which counts too
        time.sleep(2.1)
        now = time.time()
        return Outage(began, now, now, now, list(answers))


class TestClosedPort(OutageContract):
    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls, site, tmp_path_factory):
        return outage_at(free_port(), site, tmp_path_factory.mktemp("closed"))


class TestSilentPort(OutageContract):
    @pytest.fixture(scope="class")
    @classmethod
    def outage(cls, site, tmp_path_factory):
        with silent_port() as port:
            return outage_at(port, site, tmp_path_factory.mktemp("silent"))
