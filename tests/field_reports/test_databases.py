"""Reports B: SQLite's locks, what differs per database, how instants are stored."""

import contextlib
import logging
import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client

from ratelimit_app import limiter, outages
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from tests.conftest import NOON
from tests.field_reports.asking import ask, make_limit, move
from tests.races import in_processes, in_threads

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.field_reports.urls")]


def hit():
    return limiter.consume(Policy.parse("1000/min", name="b01"), "k").allowed


def hit_in_transaction():
    with transaction.atomic():
        assert Limit.objects.count() == 0
        return hit()


def assert_400_counted(hit, caplog):
    answers = in_threads(8, lambda index: [hit() for _ in range(50)])
    assert answers == [[True] * 50] * 8
    assert Counter.objects.get().count == 400
    assert caplog.records == []


@pytest.mark.parametrize("hit", [hit, hit_in_transaction])
def test_b01_threads_on_one_key_are_all_counted(clock, caplog, hit):
    """No call is lost to a lock, outside a transaction and inside one that has read."""
    assert_400_counted(hit, caplog)


class TestSQLite:
    """What only a file with one writer can do."""

    __test__ = connections["ratelimit"].vendor == "sqlite"

    @pytest.fixture
    def impatient(self, monkeypatch):
        """Let SQLite itself wait for no lock, on the connections that are opened from now on."""
        monkeypatch.setitem(connections["ratelimit"].settings_dict["OPTIONS"], "timeout", 0)

    def test_b01_counters_have_a_file_of_their_own_in_wal_mode(self):
        """The set-up that the other tests of this report are about."""
        names = {str(connections[alias].settings_dict["NAME"]) for alias in connections}
        with connections["ratelimit"].cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            assert cursor.fetchone() == ("wal",)
        assert len(names) == 2

    @pytest.mark.parametrize("hit", [hit, hit_in_transaction])
    def test_b01_timeout_of_0_is_made_up_by_the_store(self, clock, caplog, settings, impatient, hit):
        """Where SQLite does not wait, the store tries again."""
        settings.RATELIMIT_TIMEOUT = 30
        assert_400_counted(hit, caplog)

    def test_b01_lock_that_outlasts_the_timeouts_refuses_the_call_for_a_while(
        self, clock, caplog, settings, impatient
    ):
        """A lock held for too long is an error in the log, never one for the visitor."""
        settings.RATELIMIT_TIMEOUT = 0.05
        make_limit("1/min")
        with other_process_writing():
            assert in_threads(1, lambda index: ask("/decorated", 2)) == [[503, 503]]
        assert not Counter.objects.exists()
        assert [record.levelno for record in caplog.records] == [logging.ERROR]  # Django tells of no 503
        assert "was locked for too long" in caplog.text
        outages.forget()  # as it is after a second
        assert in_threads(1, lambda index: ask("/decorated", 2)) == [[200, 429]]


@contextlib.contextmanager
def other_process_writing():
    context = multiprocessing.get_context("spawn")
    locked, release = context.Event(), context.Event()
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(in_processes, 1, 1, f"{__name__}:hold_write_lock", locked, release)
        try:
            assert locked.wait(60)
            yield
        finally:
            release.set()
            assert held.result(60) == [None]


def hold_write_lock(index, locked, release):
    with transaction.atomic(using="ratelimit"):  # IMMEDIATE: holds the lock from its beginning
        locked.set()
        release.wait(60)


def test_b03_new_tables_count_show_and_prune(clock, capsys):
    """The same answers on every database, from the first migration to the last row."""
    for target in ("zero", None):
        for alias in connections:
            call_command("migrate", *filter(None, ["ratelimit_app", target]), database=alias, verbosity=0)
    make_limit("10/min")
    assert ask("/decorated", 11) == [200] * 10 + [429]
    [shown] = Client().get("/ratelimit/status/").json()["limits"]
    assert (shown["limit"], shown["used"], shown["remaining"], shown["reset_after"]) == ("case", 10, 0, 60.0)
    clock.advance(120)
    call_command("prune_ratelimits")
    assert capsys.readouterr().out == "Expired counters deleted: 1\n"
    assert not Counter.objects.exists()


def test_b03_counter_table_has_one_unique_constraint():
    """An upsert that meets any unique index must find only the one of key and window."""
    connection = connections["ratelimit"]
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, Counter._meta.db_table).values()
    unique = {tuple(each["columns"]) for each in constraints if each["unique"] or each["primary_key"]}
    assert unique == {("key", "window_start")}


@pytest.mark.parametrize("rate", ["1000/min", "80/min"])
def test_b03_returned_count_is_the_count_of_this_call(clock, rate):
    """What an upsert brings back is not what another caller has made of the row meanwhile."""
    policy = Policy.parse(rate)
    answers = in_threads(8, lambda index: [limiter.consume(policy, "k") for _ in range(25)])
    decisions = [decision for answer in answers for decision in answer]
    allowed = [decision.used for decision in decisions if decision.allowed]
    assert sorted(allowed) == list(range(1, min(200, policy.quota) + 1))
    assert {decision.used for decision in decisions if not decision.allowed} <= {policy.quota}


def test_b04_instants_within_a_window_are_one_row_that_starts_at_the_whole_second(clock):
    """Sub-seconds are neither cut nor rounded on their way to the row."""
    policy = Policy.parse("10/min")
    for moment in ("12:00:00.000001", "12:00:30.5", "12:00:59.999999"):
        move(clock, f"2026-06-01T{moment}")
        assert limiter.consume(policy, "k").allowed
        assert limiter.peek(policy, "k").used == Counter.objects.get().count
    assert list(Counter.objects.values_list("window_start", "count")) == [(NOON * 1_000_000, 3)]


@pytest.mark.parametrize("use_tz", [True, False])
def test_b04_hours_that_read_alike_are_two_windows(clock, settings, use_tz):
    """At the end of summer time 01:30 happens twice; the hours are two all the same."""
    settings.USE_TZ, settings.TIME_ZONE = use_tz, "America/New_York"
    make_limit("10/hour")
    for moment in ("05:30", "06:30"):
        move(clock, f"2026-11-01T{moment}")
        assert ask("/decorated", 6) == [200] * 6
    assert [counter.count for counter in Counter.objects.all()] == [6, 6]


@pytest.mark.parametrize("use_tz", [True, False])
def test_b04_rows_outlive_a_switch_of_use_tz(clock, settings, capsys, use_tz):
    """Instants are numbers: none of them is naive or aware."""
    settings.USE_TZ = use_tz
    make_limit("5/min")
    assert ask("/decorated", 3) == [200] * 3
    settings.USE_TZ = not use_tz
    assert ask("/decorated", 3) == [200, 200, 429]
    call_command("prune_ratelimits")
    clock.advance(120)
    call_command("prune_ratelimits")
    assert capsys.readouterr().out == "Expired counters deleted: 0\nExpired counters deleted: 1\n"
