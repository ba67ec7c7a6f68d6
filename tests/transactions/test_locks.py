"""No row stays locked while a view runs: views of one key, all inside at once, can meet there."""

import threading

import pytest
from django.db import connections
from django.test import Client

from ratelimit_app import limiter
from tests.races import in_threads
from tests.transactions import views
from tests.transactions.places import everywhere
from tests.transactions.views import ENTRIES

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.transactions.views"),
    pytest.mark.usefixtures("clock"),
]

WORKERS = 10


@everywhere
@pytest.mark.parametrize("entry", ENTRIES)
def test_views_of_one_key_all_run_at_the_same_time(place, settings, monkeypatch, entry):
    if connections["default"].vendor == "sqlite":
        # This project's transactions on SQLite are IMMEDIATE: they wait for each other, limiter or not.
        monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "transaction_mode", "DEFERRED")
    monkeypatch.setattr(views, "meeting", threading.Barrier(WORKERS))
    settings.RATELIMIT_LIMITS = {"case": {"rate": "100/min", "path": "^/plain/"}}
    assert in_threads(WORKERS, lambda index: Client().get(f"/{entry}/meet").status_code) == [200] * WORKERS
    assert limiter.peek("case", "ip:127.0.0.1").used == WORKERS
