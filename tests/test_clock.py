import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections

from ratelimit_app import clock as app_clock
from ratelimit_app import limiter, outages
from ratelimit_app.stores import store_for
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
from tests.outages import outage

HOUR = 3_600_000_000
HAS_CLOCK = connections["ratelimit"].vendor != "sqlite"


@pytest.fixture(autouse=True)
def forget_the_server():
    app_clock.follow_local()
    yield
    app_clock.follow_local()


@pytest.fixture
def runs(monkeypatch):
    """A hand that moves the clock of intervals."""
    at = {"seconds": 1_000.0}
    monkeypatch.setattr(app_clock, "monotonic", lambda: at["seconds"])

    def move(seconds):
        at["seconds"] += seconds

    return move


def lead():
    """Microseconds by which the app's clock is ahead of this machine's, to the nearest hour."""
    return round((app_clock.now() - time.time_ns() // 1_000) / HOUR) * HOUR


def ahead():
    return time.time_ns() // 1_000 + HOUR


def behind():
    return time.time_ns() // 1_000 - HOUR


def test_now_is_microseconds_of_this_machine():
    before = time.time_ns() // 1_000
    now = app_clock.now()
    assert before <= now <= time.time_ns() // 1_000
    assert type(now) is int


@pytest.mark.parametrize(("server", "expected"), [(ahead, HOUR), (behind, -HOUR)])
def test_follow_adds_the_offset_of_the_server(server, expected):
    app_clock.follow(server)
    assert lead() == expected


def test_follow_takes_half_of_the_trip_for_the_way_back(monkeypatch):
    readings = iter([1_000, 5_000])
    monkeypatch.setattr(app_clock, "_local", lambda: next(readings))
    app_clock.follow(lambda: 100_000)
    monkeypatch.setattr(app_clock, "_local", lambda: 5_000)
    assert app_clock.now() == 5_000 + 100_000 - 3_000


def test_follow_leaves_out_the_time_that_it_took_to_connect(monkeypatch):
    local = [1_000]
    monkeypatch.setattr(app_clock, "_local", lambda: local[0])

    def server():
        local[0] = 90_000_000  # once, while the connection is opened
        return local[0]

    app_clock.follow(server)
    assert app_clock.now() == 90_000_000


def test_follow_measures_again_only_after_a_minute(runs):
    app_clock.follow(ahead)
    runs(59.999)
    app_clock.follow(behind)
    assert lead() == HOUR
    runs(0.001)
    app_clock.follow(behind)
    assert lead() == -HOUR


def test_follow_asks_a_server_that_does_not_answer_once_a_minute(runs):
    def fail():
        raise RuntimeError

    app_clock.follow(ahead)
    runs(60)
    with pytest.raises(RuntimeError):
        app_clock.follow(fail)
    app_clock.follow(fail)
    assert lead() == HOUR


def test_follow_local_forgets_what_was_measured():
    app_clock.follow(ahead)
    app_clock.follow_local()
    assert lead() == 0
    app_clock.follow(behind)
    assert lead() == -HOUR


def test_frozen_time_is_never_offset():
    app_clock.follow(ahead)
    with frozen_time(NOON):
        assert app_clock.now() == NOON * 1_000_000
        app_clock.follow(behind)
        assert app_clock.now() == NOON * 1_000_000
    assert lead() == HOUR


def test_frozen_time_measures_nothing():
    with frozen_time(NOON):
        app_clock.follow(ahead)
    assert lead() == 0


def test_frozen_time_leaves_intervals_running(clock):
    first = app_clock.monotonic()
    while app_clock.monotonic() == first:
        pass
    assert app_clock.monotonic() > first


# Whose clock counts -------------------------------------------------------------------------------


def asked(monkeypatch, server):
    """Let the server have another time, and return how often it was asked."""
    times = []
    store = type(store_for("ratelimit"))
    monkeypatch.setattr(store, "server_time", lambda self: times.append(self.alias) or server())
    return times


@pytest.mark.django_db
def test_database_clock_is_asked_where_there_is_one(monkeypatch, settings):
    settings.RATELIMIT_CLOCK = "database"
    times = asked(monkeypatch, ahead)
    limiter.now()
    assert set(times) == ({"ratelimit"} if HAS_CLOCK else set())
    assert lead() == HOUR * HAS_CLOCK
    measured = list(times)
    limiter.now()
    assert times == measured


@pytest.mark.django_db
def test_local_clock_asks_nobody(monkeypatch, settings):
    times = asked(monkeypatch, ahead)
    limiter.now()
    settings.RATELIMIT_CLOCK = "local"
    asked_before = len(times)
    limiter.now()
    assert (len(times), lead()) == (asked_before, 0)


@pytest.mark.django_db
def test_server_clock_is_read_in_microseconds_of_the_epoch(settings):
    settings.RATELIMIT_CLOCK = "database"
    limiter.now()
    # One machine runs the tests and the database.
    assert lead() == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
def test_server_that_does_not_answer_leaves_the_clock_as_it_was(settings, kind):
    settings.RATELIMIT_CLOCK = "database"
    with outage(kind):
        limiter.now()
        assert lead() == 0


@pytest.mark.django_db
def test_thread_that_finds_the_clock_measured_tells_nothing_of_the_database(monkeypatch, settings):
    """It was not asked: what is left alone stays so."""
    settings.RATELIMIT_CLOCK = "database"
    monkeypatch.setattr(app_clock, "follow", lambda read_server_time: None)
    monkeypatch.setattr(outages, "ask", lambda *args, **kwargs: pytest.fail("it was asked"))
    limiter.now()


def test_threads_that_come_while_the_first_measures_wait_and_count_by_what_it_finds():
    asked, go = threading.Event(), threading.Event()

    def server_time():
        asked.set()
        assert go.wait(30)
        return time.time_ns() // 1_000 + 3_600_000_000

    def now():
        app_clock.follow(server_time)
        return app_clock.now()

    with ThreadPoolExecutor(4) as pool:
        times = [pool.submit(now)]
        assert asked.wait(30)
        times += [pool.submit(now) for _ in range(3)]
        go.set()
        assert all(time_.result() > time.time_ns() // 1_000 + 3_000_000_000 for time_ in times)


def test_measurement_that_fails_is_made_again_after_a_second(monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr(app_clock, "monotonic", lambda: seconds[0])
    asked = []

    def server_time():
        asked.append(seconds[0])
        raise OSError("no answer")

    for at in (100.0, 100.5, 101.0, 101.9, 102.0):
        seconds[0] = at
        with contextlib.suppress(OSError):
            app_clock.follow(server_time)
    assert asked == [100.0, 101.0, 102.0]
