"""Report T02: no row stays locked while a view runs; views of one key, all inside at once, can meet there."""

import threading

import pytest
from django.db import connections
from django.test import Client

from project.models import ApiCall
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
def test_t02_views_of_one_key_all_run_at_once_and_others_write_meanwhile(place, settings, monkeypatch, entry):
    if connections["default"].vendor == "sqlite":
        # This project's transactions on SQLite are IMMEDIATE: they wait for each other, limiter or not.
        monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "transaction_mode", "DEFERRED")
    monkeypatch.setattr(views, "meeting", threading.Barrier(WORKERS + 1))
    monkeypatch.setattr(views, "inside", threading.Semaphore(0))
    settings.RATELIMIT_LIMITS = {"case": {"rate": "100/min", "path": "^/plain/"}}

    def ask(index):
        if index < WORKERS:
            return Client().get(f"/{entry}/meet").status_code
        assert all(views.inside.acquire(timeout=30) for _ in range(WORKERS))
        other = Client(REMOTE_ADDR="192.0.2.1").get(f"/{entry}/end/answers").status_code
        views.meeting.wait(30)
        return other

    assert in_threads(WORKERS + 1, ask) == [200] * (WORKERS + 1)
    assert limiter.peek("case", "ip:127.0.0.1").used == WORKERS
    assert ApiCall.objects.count() == 1
