"""Reports M: what prune_ratelimits must leave alone, and whom it must not disturb."""

import contextlib
import io
import multiprocessing
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import call_command
from django.db import connections
from model_bakery import baker

from ratelimit_app import calls, limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.stores import store_for
from ratelimit_app.windows import MICROSECONDS
from tests.conftest import NOON
from tests.field_reports.asking import move
from tests.races import in_processes, in_threads

pytestmark = pytest.mark.django_db

QUOTAS = {"minute": 5, "day": 5, "month": 3}


def prune(*args):
    """Prune as cron does; return how many counters were deleted."""
    out = io.StringIO()
    call_command("prune_ratelimits", *args, stdout=out)
    [deleted] = re.findall(r"Expired counters deleted: ([\d,]+)", out.getvalue())
    return int(deleted.replace(",", ""))


def wait_for_pruning():
    """Wait until nobody prunes beside the calls."""
    for thread in threading.enumerate():
        if thread.name == "ratelimit-prune":
            thread.join(60)


def exhaust(name):
    assert [limiter.consume(name, "k").allowed for _ in range(QUOTAS[name])] == [True] * QUOTAS[name]


def allowed():
    """Return the limits that still have room; asking takes it."""
    return {name for name in QUOTAS if limiter.consume(name, "k").allowed}


@pytest.fixture
def exhausted(clock):
    """Limits of three periods, all used up, on a day late in the month; prune has nothing to do."""
    for name, quota in QUOTAS.items():
        baker.make(Limit, name=name, rate=f"{quota}/{name}")
    exhaust("month")
    move(clock, "2026-06-26T12:00:00")
    exhaust("day")
    exhaust("minute")
    assert allowed() == set()
    return clock


@pytest.mark.parametrize("options", [(), ("--batch-size=1",), ("--max-seconds=1e-9",)], ids=str)
def test_m02_prune_leaves_windows_that_still_count(exhausted, options):
    """A clean-up is no amnesty, in the month that began 25 days ago neither."""
    assert [prune(*options), prune(*options)] == [0, 0]
    assert allowed() == set()


@pytest.mark.urls("tests.field_reports.urls")
def test_m02_requests_are_refused_after_a_prune_as_before_it(clock, client):
    """And each of the three limits says so to who asks: 429."""
    for name, quota in QUOTAS.items():
        baker.make(Limit, name=name, rate=f"{quota}/{name}", key="global", path=f"^/api/{name}$")
        assert get(client, name, quota) == [200] * quota
    assert [prune(), prune()] == [0, 0]
    assert [get(client, name, 1) for name in QUOTAS] == [[429]] * 3


def get(client, name, times):
    return [client.get(f"/api/{name}").status_code for _ in range(times)]


@pytest.mark.django_db(transaction=True)
def test_m02_prune_beside_a_call_leaves_windows_that_still_count(exhausted, settings):
    """Nor is one that a call begins by itself."""
    Counter.objects.create(key="old", window_start=1, count=1, expires_at=1)
    settings.RATELIMIT_PRUNE_PROBABILITY = 1
    baker.make(Limit, name="hour", rate="5/hour")
    assert limiter.consume("hour", "k").allowed
    wait_for_pruning()
    assert not Counter.objects.filter(key="old").exists()
    assert allowed() == set()


@pytest.mark.parametrize(
    ("pruned_at", "begun_anew"),
    [
        ("2026-06-26T12:00:59.999999", set()),
        ("2026-06-26T12:01:00", {"minute"}),
        ("2026-06-26T23:59:59.999999", {"minute"}),
        ("2026-06-27T00:00:00", {"minute", "day"}),
        ("2026-06-30T23:59:59.999999", {"minute", "day"}),
        ("2026-07-01T00:00:00", {"minute", "day", "month"}),
    ],
)
def test_m02_prune_at_an_edge_gives_back_only_what_has_ended(exhausted, pruned_at, begun_anew):
    """At the very end of a window its own count may go, and nobody else's."""
    move(exhausted, pruned_at)
    prune()
    assert allowed() == begun_anew


def test_m02_prune_deletes_rows_of_windows_that_are_over_once(exhausted):
    """What is over goes, what is not stays, and a second run finds nothing."""
    move(exhausted, "2026-06-28T12:00:00")
    exhaust("day")
    assert [prune(), prune()] == [2, 0]
    assert allowed() == {"minute"}
    assert sorted(Counter.objects.values_list("count", flat=True)) == [1, 3, 5]


def test_m02_prune_after_a_period_was_lengthened_keeps_its_row(exhausted):
    """The count of a limit outlives the period that the limit had before."""
    limit = Limit.objects.get(name="minute")
    limit.rate = "5/month"
    limit.save()
    exhaust("minute")
    move(exhausted, "2026-06-27T12:00:00")
    prune()
    assert allowed() == {"day"}


def test_m02_prune_after_a_period_was_shortened_keeps_what_counts(exhausted):
    """Nor does the row of the longer period make that of the shorter one go."""
    limit = Limit.objects.get(name="month")
    limit.rate = "3/hour"
    limit.save()
    exhaust("month")
    assert prune() == 0
    assert allowed() == set()


def hit(thread):
    """Hit 40 keys in turn, the odd ones by a call that was planned in a window long over."""
    store, limit = store_for("ratelimit"), limiter.current_limits().find("busy")
    long_ago = (NOON - 3_600) * MICROSECONDS
    for number in range(600):
        key = (number + 5 * thread) % 40
        if key % 2:
            assert store.advance(calls.plan(limit, f"k{key}", 1, long_ago).advance).fits
        else:
            assert limiter.consume("busy", f"k{key}").allowed
    return 600


def prune_without_pause(index, options, begun, over):
    """Prune until the hits are over; return how many counters were deleted."""
    connections["ratelimit"].settings_dict["OPTIONS"] |= options
    type(store_for("ratelimit")).rest = 0
    deleted = prune()
    begun.wait(60)
    while not over.is_set():
        deleted += prune()
    return deleted


@contextlib.contextmanager
def two_processes_pruning(options):
    context = multiprocessing.get_context("spawn")
    begun, over = context.Barrier(3), context.Event()
    with ThreadPoolExecutor(1) as pool:
        pruned = pool.submit(
            in_processes, 2, 1, f"{__name__}:prune_without_pause", options, begun, over, frozen_at=NOON
        )
        try:
            begun.wait(60)
            yield pruned
        finally:
            over.set()


#: MySQL locks the gaps between rows too under its own default, which is not Django's.
CONNECTIONS = {"mysql": [{}, {"isolation_level": "repeatable read"}]}.get(
    connections["ratelimit"].vendor, [{}]
)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("probability", [0, 0.1])
@pytest.mark.parametrize("options", CONNECTIONS)
def test_m03_prune_beside_hits_and_itself_disturbs_nobody(
    clock, caplog, monkeypatch, settings, options, probability
):
    """Cron that was started twice, under load, breaks neither a request nor a count nor itself."""
    connection = connections["ratelimit"].settings_dict
    monkeypatch.setitem(connection, "OPTIONS", connection["OPTIONS"] | options)
    settings.RATELIMIT_PRUNE_PROBABILITY = probability
    baker.make(Limit, name="busy", rate="1000/min")
    with two_processes_pruning(options) as pruned:
        assert in_threads(8, hit) == [600] * 8
    deleted = pruned.result(60)
    wait_for_pruning()
    assert all(isinstance(number, int) for number in deleted), deleted
    assert sum(deleted) > 0
    assert caplog.records == []
    live = Counter.objects.filter(expires_at__gt=NOON * MICROSECONDS)
    assert list(live.values_list("count", flat=True)) == [120] * 20
    prune()
    assert Counter.objects.count() == 20
