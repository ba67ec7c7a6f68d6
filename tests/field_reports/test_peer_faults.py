"""Faults seen in other limiters, one test or two for each; this one must not have them."""

import threading

import pytest
from django.core.exceptions import ValidationError
from django.db import connections, transaction
from django.test import Client
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from tests.field_reports import views
from tests.field_reports.asking import ENTRIES, ENTRIES_WITH_TWO, ask, make_limit
from tests.races import in_threads

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

in_real_transactions = pytest.mark.django_db(transaction=True)

SQLITE = connections["ratelimit"].vendor == "sqlite"

#: Where the counters are: beside the project's connection, or on it. One file has one writer, so that
#: on SQLite the latter counts within the caller's transaction, which ``manage.py check`` warns of.
PLACES = ["ratelimit"] if SQLITE else ["ratelimit", "default"]


def used(name, key="ip:127.0.0.1"):
    return limiter.peek(name, key).used


@in_real_transactions
def test_throttle_under_concurrent_calls_admits_its_quota(clock):
    """Reading a list and writing it back admitted all of 200 calls under 50 an hour."""
    make_limit("50/hour")
    answers = in_threads(20, lambda index: ask("/drf", 10))
    statuses = [status for answer in answers for status in answer]
    assert (statuses.count(200), statuses.count(429)) == (50, 150)


@in_real_transactions
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("request_path", [*(f"{entry}?fail" for entry in ENTRIES), "/drf?invalid"])
def test_count_of_a_view_that_raises_is_not_rolled_back(clock, settings, monkeypatch, place, request_path):
    """Under ATOMIC_REQUESTS a failing view took its own count back: 10 of 10 under a limit of 2."""
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    settings.RATELIMIT_DATABASE = place
    make_limit("2/min")
    statuses = ask(request_path, 10, Client(raise_request_exception=False))
    assert statuses == [400 if "invalid" in request_path else 500] * 2 + [429] * 8


@in_real_transactions
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_counter_is_not_locked_while_views_run(clock, settings, monkeypatch, place, entry):
    """Four views of one key ran one after another, because each held the row; here they must meet."""
    # SQLite lets no two transactions run at once anyway, as they are IMMEDIATE in this project.
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", not SQLITE)
    monkeypatch.setattr(views, "meeting", threading.Barrier(4))
    settings.RATELIMIT_DATABASE = place
    make_limit("100/min")
    assert in_threads(4, lambda index: ask(f"{entry}?meet", 1)) == [[200]] * 4


def test_cost_of_20_takes_one_query(clock, django_assert_num_queries):
    """A cost was taken unit by unit, in 101 queries."""
    limit = make_limit("100/min")
    assert used(limit.name) == 0
    with django_assert_num_queries(0), django_assert_num_queries(1, connection=connections["ratelimit"]):
        assert limiter.consume(limit.name, "k", cost=20).used == 20


@pytest.mark.parametrize("entry", ENTRIES)
def test_cost_above_what_is_left_is_refused_whole(clock, entry):
    """A cost of 9 passed twice under a limit of 10."""
    make_limit("10/min", cost=9)
    assert ask(entry, 2) == [200, 429]
    assert used("case") == 9


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param(
            [Policy("a", "fixed_window", 2, 60), Policy("a", "fixed_window", 2, 3_600)], id="windows"
        ),
        pytest.param([Policy("a", "fixed_window", 2, 60), Policy("b", "fixed_window", 2, 60)], id="scopes"),
        pytest.param(
            [Policy("a", "fixed_window", 2, 86_400), Policy("a", "fixed_window", 2, "day")],
            id="kinds of a day",
        ),
    ],
)
def test_windows_and_scopes_have_rows_of_their_own(clock, policies):
    """Windows of 60 and of 3,600 seconds, and two scopes, shared a row."""
    for policy in policies:
        assert [limiter.consume(policy, "k").allowed for _ in range(3)] == [True, True, False]
    assert [counter.count for counter in Counter.objects.all()] == [2, 2]


def test_path_below_a_prefix_is_no_part_of_the_key(clock):
    """Varying the path below /api/ passed 8 of 8 under 2 a minute."""
    baker.make(Limit, name="api", rate="2/min", path="^/api/")
    assert [Client().get(f"/api/{number}").status_code for number in range(8)] == [200] * 2 + [429] * 6


@in_real_transactions
def test_calls_in_transactions_that_have_read_meet_no_lock(clock, caplog):
    """On a SQLite file, 188 of 200 calls from 20 threads failed with "database is locked"."""
    limit = make_limit("1000/min")

    def hit():
        with transaction.atomic():
            assert Limit.objects.get() == limit
            return limiter.consume("case", "k").allowed

    assert in_threads(20, lambda index: [hit() for _ in range(10)]) == [[True] * 10] * 20
    assert Counter.objects.get().count == 200
    assert caplog.records == []


@in_real_transactions
@pytest.mark.parametrize("names", [("case", "other"), ("other", "case")])
@pytest.mark.parametrize("entry", ENTRIES_WITH_TWO)
def test_limits_of_a_refused_request_are_not_charged(clock, entry, names):
    """What one limit refused was charged to the other one all the same."""
    tight, wide = names
    make_limit("1/min", name=tight)
    make_limit("100/min", name=wide)
    assert ask(entry, 5) == [200] + [429] * 4
    assert (used(tight), used(wide)) == (1, 1)


@in_real_transactions
@pytest.mark.parametrize("names", [("first", "second"), ("second", "first")])
def test_calls_that_will_be_refused_take_no_room_meanwhile(clock, names):
    """With one slot free, calls in flight that were refused later kept out those that fitted."""
    free, spent = names
    baker.make(Limit, name=free, rate="1/min")
    baker.make(Limit, name=spent, rate="1/min")
    assert limiter.consume(spent, "spent").allowed
    together = threading.Barrier(4)

    def call(index):
        allowed = 0
        for number in range(50):
            together.wait(60)
            key = "spent" if index else f"fits {number}"
            allowed += limiter.consume_all({free: f"slot {number}", spent: key}).allowed
        return allowed

    assert in_threads(4, call) == [50, 0, 0, 0]


@pytest.mark.parametrize(("rate", "window"), [("5/month", "month"), ("5/w", 604_800), ("5/week", 604_800)])
def test_rate_is_understood_whole(rate, window):
    """A pattern without an anchor made 5/month 5 a minute, and 5/w 5 a second."""
    policy = Policy.parse(rate)
    assert (policy.quota, policy.window) == (5, window)


@pytest.mark.parametrize("rate", ["5/mo", "5/wk", "5/m 5/h", "5/min/h", "x5/m"])
def test_rate_that_is_not_understood_whole_is_an_error(rate):
    """Nor is it guessed where it only begins or ends like a rate."""
    with pytest.raises(ValidationError, match="rate"):
        Limit(name="case", rate=rate).full_clean()


@pytest.mark.parametrize(("first", "second"), [("api", "api1"), ("api1", "api")])
def test_names_that_begin_alike_have_rows_of_their_own(clock, first, second):
    """Glued without a separator, api at 11/m and api1 at 1/m had the same key."""
    rates = {"api": "11/m", "api1": "1/m"}
    for name in (first, second):
        baker.make(Limit, name=name, rate=rates[name])
    assert [limiter.consume(first, "k").allowed for _ in range(12)].count(True) == int(rates[first][:-2])
    assert [limiter.consume(second, "k").allowed for _ in range(12)].count(True) == int(rates[second][:-2])


def test_refused_cost_leaves_room_for_a_smaller_one(clock):
    """A cost of 11 under a limit of 10 was refused, and after it everything else too."""
    policy = Policy.parse("10/min")
    assert limiter.consume(policy, "k", cost=7).allowed
    for cost, allowed in [(11, False), (4, False), (1, True), (2, True), (1, False)]:
        assert limiter.consume(policy, "k", cost=cost).allowed is allowed


@in_real_transactions
def test_calls_below_the_limit_are_not_refused_for_a_lock(clock):
    """192 of 200 calls under a limit of 1,000 were refused because another one held the lock."""
    policy = Policy.parse("1000/min")
    answers = in_threads(20, lambda index: [limiter.consume(policy, "k").allowed for _ in range(10)])
    assert answers == [[True] * 10] * 20
    assert Counter.objects.get().count == 200
