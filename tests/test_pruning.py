"""What prunes expired counters: batches with a rest after each, and one now and then beside a call."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.db import OperationalError, connections

from ratelimit_app import limiter, pruning
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import Policy
from ratelimit_app.stores import Store, store_for
from tests.conftest import NOON
from tests.outages import outage
from tests.races import environment

ROOT = Path(__file__).parent.parent
NOW = NOON * 1_000_000
LIMIT = Policy.parse("5/min", name="a")
HELD = Policy.parse("5/min", name="held", algorithm="concurrency")
_PATIENCE = 60

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]


def make(number, *, expires_at=NOW):
    Counter.objects.bulk_create(
        Counter(key=f"old:{n}", window_start=1, count=1, expires_at=expires_at) for n in range(number)
    )


def expired():
    return store_for("ratelimit").count_expired(NOW)


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "ratelimit-prune"]


def wait():
    """Wait until nobody prunes beside the calls."""
    for thread in threads():
        thread.join(_PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def always(settings):
    settings.RATELIMIT_PRUNE_PROBABILITY = 1
    yield settings
    wait()


@pytest.fixture
def held_up(monkeypatch):
    """Hold up whoever begins to prune; yields what it was called with, and what lets it go on."""
    send, asked, go_on = Store.prune, [], threading.Event()

    def prune(self, now, batch_size):
        asked.append((now, batch_size))
        assert go_on.wait(_PATIENCE)
        return send(self, now, batch_size)

    monkeypatch.setattr(Store, "prune", prune)
    yield asked, go_on
    go_on.set()
    wait()


# Batches ------------------------------------------------------------------------------------------


def test_rest_is_in_proportion_to_the_batch_and_bounded(monkeypatch):
    store = store_for("ratelimit")
    readings, rests, batches = iter([0.0, 0.01, 5.0, 5.02, 6.0, 66.0, 70.0]), [], iter([10, 10, 3, 0])
    monkeypatch.setattr(pruning.clock, "monotonic", lambda: next(readings))
    monkeypatch.setattr(pruning.time, "sleep", rests.append)
    monkeypatch.setattr(Store, "prune", lambda self, now, batch_size: next(batches))
    assert list(pruning.batches(store, NOW, 10)) == [10, 10, 3]
    assert rests == [pytest.approx(0.01 * store.rest), pytest.approx(0.02 * store.rest), 1.0]


def test_who_stops_after_a_batch_needs_no_rest(monkeypatch):
    monkeypatch.setattr(pruning.time, "sleep", lambda seconds: pytest.fail("rested"))
    make(20)
    assert next(pruning.batches(store_for("ratelimit"), NOW, 10)) == 10


# Beside a call ------------------------------------------------------------------------------------


def test_nothing_is_pruned_unless_the_project_asks_for_it():
    make(3)
    for _ in range(5):
        limiter.consume(LIMIT, "k")
    assert (threads(), expired()) == ([], 3)


def test_call_that_is_counted_prunes_one_batch(always, monkeypatch):
    monkeypatch.setattr(type(store_for("ratelimit")), "batch", 10)
    make(25)
    assert limiter.consume(LIMIT, "k").allowed
    wait()
    assert expired() == 15
    assert limiter.peek(LIMIT, "k").used == 1


def test_batch_is_of_counters_and_of_logs(always):
    make(2)
    LoggedCall.objects.create(key="old", sequence=1, units=1, expires_at=NOW)
    limiter.consume_all({LIMIT: "k", HELD: "k"})
    wait()
    assert expired() == 0
    assert LoggedCall.objects.count() == 1


def test_probability_says_how_often(settings, held_up, monkeypatch):
    settings.RATELIMIT_PRUNE_PROBABILITY = 0.25
    asked, go_on = held_up
    go_on.set()
    for drawn in (0.0, 0.2499, 0.25, 0.9):
        monkeypatch.setattr(pruning.random, "random", lambda drawn=drawn: drawn)
        limiter.consume(LIMIT, "k")
        wait()
    assert asked == [(NOW, store_for("ratelimit").batch)] * 2


def test_call_that_counts_nothing_prunes_nothing(always):
    limiter.consume(LIMIT, "k", cost=5)
    wait()
    make(3)
    assert not limiter.consume(LIMIT, "k").allowed
    limiter.peek(LIMIT, "other")
    limiter.consume("nosuch", "k")
    always.RATELIMIT_ENABLE = False
    limiter.consume(LIMIT, "k")
    assert (threads(), expired()) == ([], 3)


def test_call_that_only_this_process_has_counted_prunes_nothing(always, caplog):
    always.RATELIMIT_ON_ERROR = "local"
    with outage("server"):
        assert limiter.consume(LIMIT, "only-here").receipt
        assert threads() == []
    assert "cannot be pruned" not in caplog.text


def test_call_does_not_wait_and_one_thread_is_enough(always, held_up):
    asked, go_on = held_up
    make(3)
    for _ in range(4):
        assert limiter.consume(LIMIT, "k").allowed
    assert (len(asked), len(threads()), expired()) == (1, 1, 3)
    assert threads()[0].daemon
    go_on.set()
    wait()
    assert expired() == 0
    limiter.consume(LIMIT, "k")
    wait()
    assert len(asked) == 2


def test_connection_of_the_thread_is_closed(always, monkeypatch):
    send, used = Store.prune, []

    def prune(self, now, batch_size):
        used.append(connections["ratelimit"])
        deleted = send(self, now, batch_size)
        assert used[0].connection is not None
        return deleted

    monkeypatch.setattr(Store, "prune", prune)
    limiter.consume(LIMIT, "k")
    wait()
    assert used[0] is not connections["ratelimit"]
    assert used[0].connection is None


@pytest.mark.parametrize("error", [OperationalError("away"), RuntimeError("odd")])
def test_error_is_reported_and_the_next_call_tries_again(error, always, monkeypatch, caplog):
    tried = []

    def prune(self, now, batch_size):
        tried.append(now)
        raise error

    monkeypatch.setattr(Store, "prune", prune)
    for _ in range(2):
        assert limiter.consume(LIMIT, "k").allowed
        wait()
    assert len(tried) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "The counters on the database 'ratelimit' cannot be pruned"
    ]
    assert caplog.records[0].exc_info[1] is error


def test_thread_that_cannot_be_had_is_not_missed(always, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert limiter.consume(LIMIT, "k").allowed
    make(3)
    assert limiter.consume(LIMIT, "k").allowed
    wait()
    assert (expired(), caplog.records) == (0, [])


def no_thread(self):
    raise RuntimeError("can't start new thread")


@pytest.mark.django_db
def test_test_that_is_rolled_back_prunes_nothing(always):
    make(3)
    assert limiter.consume(LIMIT, "k").allowed
    assert (threads(), expired()) == ([], 3)


# Processes ----------------------------------------------------------------------------------------

_BEGIN = """
import os, sys, threading, django
django.setup()
from django.conf import settings
from ratelimit_app import limiter, pruning
from ratelimit_app.policy import Policy
from ratelimit_app.stores import Store
settings.RATELIMIT_PRUNE_PROBABILITY = 1
limit, send, stuck = Policy.parse("100/min", name="a"), Store.prune, threading.Event()
def prune(self, now, batch_size):
    stuck.set()
    threading.Event().wait()
Store.prune = prune
assert limiter.consume(limit, "k").allowed
assert stuck.wait(60)
"""


def run(script):
    """Run a script in a process that has a thread which will never have pruned."""
    env = environment() | {"DJANGO_SETTINGS_MODULE": "project.settings"}
    return subprocess.run(
        [sys.executable, "-c", _BEGIN + script],
        cwd=ROOT,
        env=env,
        text=True,
        capture_output=True,
        timeout=_PATIENCE,
    )


def test_process_that_ends_waits_for_nobody():
    ended = run("print('end')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_process_that_was_forked_meanwhile_prunes_by_itself():
    make(3, expires_at=1)
    ended = run("""
import warnings
from django.db import connections
connections.close_all()
warnings.simplefilter("ignore", DeprecationWarning)  # of the fork itself, from Python 3.12
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
Store.prune = send
assert limiter.consume(limit, "k").allowed
for thread in threading.enumerate():
    if thread.name == "ratelimit-prune":
        thread.join(60)
connections.close_all()
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert Counter.objects.filter(expires_at=1).count() == 0
