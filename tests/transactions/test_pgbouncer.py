"""pgbouncer in transaction mode: no prepared statement and no state of a session is relied on."""

import contextlib

import pytest
from django.db import connections, transaction
from django.test import Client

from project.models import ApiCall
from ratelimit_app import algorithms, limiter
from ratelimit_app.policy import Policy
from ratelimit_app.stores import committing
from tests.races import in_threads
from tests.transactions.bouncer import COUNTERS, pgbouncer
from tests.transactions.places import APART, SHARED
from tests.transactions.views import ENDINGS, ENTRIES

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.transactions.views"),
    pytest.mark.usefixtures("clock", "bounced"),
]

THREADS = 8
POLICIES = [Policy.parse("7/h", name=name, algorithm=name) for name in algorithms.names()]


@pytest.fixture(scope="module")
def port(tmp_path_factory, django_db_setup):
    with pgbouncer(tmp_path_factory.mktemp("pgbouncer")) as port:
        yield port


@pytest.fixture(params=[APART, SHARED])
def bounced(request, port, monkeypatch, settings):
    """Connect by pgbouncer, as Django's documentation says."""
    counters, *_ = request.param.split()
    settings.RATELIMIT_DATABASE = counters
    _begin_anew()
    for alias in connections:
        database = connections[alias].settings_dict
        monkeypatch.setitem(database, "HOST", "127.0.0.1")
        monkeypatch.setitem(database, "PORT", port)
        monkeypatch.setitem(database, "DISABLE_SERVER_SIDE_CURSORS", True)
    monkeypatch.setitem(connections["ratelimit"].settings_dict, "NAME", COUNTERS)
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    yield
    _begin_anew()


def _begin_anew():
    """Close all connections, and forget the second ones, which keep the settings that they began with."""
    connections.close_all()
    for alias in connections:
        committing._second.pop(connections[alias], None)


def test_threads_share_the_sessions_of_the_server():
    """The tests of this file are about something: callers outnumber the sessions."""

    def own(index):
        with connections["ratelimit"].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return cursor.fetchone()[0]

    assert len(set(in_threads(THREADS, own))) <= 2


@pytest.mark.parametrize("entry", ENTRIES)
def test_attempt_stays_counted_however_the_view_ends(entry):
    for number, name in enumerate(ENDINGS):
        client = Client(raise_request_exception=False, REMOTE_ADDR=f"192.0.2.{number}")
        assert [client.get(f"/{entry}/end/{name}").status_code for _ in range(3)][-1] == 429, name
        assert limiter.peek("case", f"ip:192.0.2.{number}").used == 2


@pytest.mark.parametrize("where", [contextlib.nullcontext, transaction.atomic])
def test_races_admit_each_quota_exactly(where, caplog):
    def hit(index):
        with where():
            assert not ApiCall.objects.exists()
            return [[limiter.consume(policy, "k").allowed for policy in POLICIES] for _ in range(3)]

    answers = [allowed for rows in in_threads(THREADS, hit) for allowed in rows]
    assert [sum(column) for column in zip(*answers, strict=True)] == [7] * len(POLICIES)
    assert caplog.records == []


@pytest.mark.parametrize("where", [contextlib.nullcontext, transaction.atomic])
def test_races_for_several_limits_at_once_are_all_or_nothing(where, caplog):
    def hit(index):
        keys = dict.fromkeys(POLICIES if index % 2 else reversed(POLICIES), "k")
        with where():
            return [limiter.consume_all(keys).allowed for _ in range(3)]

    assert sum(allowed for row in in_threads(THREADS, hit) for allowed in row) == 7
    assert {limiter.peek(policy, "k").used for policy in POLICIES} == {7}
    assert caplog.records == []


def test_session_that_the_server_has_ended_behind_it_is_replaced(caplog):
    """pgbouncer drops it from its pool, and tells its client nothing."""
    assert limiter.consume(POLICIES[0], "k").allowed
    connection = connections["ratelimit"]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert limiter.consume(POLICIES[0], "k").used == 2
    assert caplog.records == []
