"""Where the counters may be, and which of the aliases' transactions a request is in."""

import shutil

import pytest
from django.db import connections

VENDOR = connections["ratelimit"].vendor

#: What only a server has, and what takes a pgbouncer in front of PostgreSQL.
collect_ignore = [
    *(["test_killed.py", "test_isolation.py", "test_sessions.py"] if VENDOR == "sqlite" else []),
    *([] if VENDOR == "postgresql" and shutil.which("pgbouncer") else ["test_pgbouncer.py"]),
    *([] if VENDOR == "sqlite" else ["test_one_file.py"]),
]


@pytest.fixture(autouse=True)
def _only_limits_of_the_test(settings) -> None:
    settings.RATELIMIT_LIMITS = {"case": {"rate": "2/min", "path": "^/plain/"}}


@pytest.fixture
def place(request, settings, monkeypatch) -> str:
    """Put the counters on the first of the aliases named; requests are in transactions on the others."""
    counters, *atomic = request.param.split()
    settings.RATELIMIT_DATABASE = counters
    for alias in atomic:
        monkeypatch.setitem(connections[alias].settings_dict, "ATOMIC_REQUESTS", True)
    return counters
