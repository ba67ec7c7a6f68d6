"""Many callers at once, as threads and as processes: what is exact alone stays exact among others."""

import collections
import dataclasses
import itertools

import pytest
from django.db import transaction

from ratelimit_app import algorithms, limiter
from ratelimit_app.models import Counter
from ratelimit_app.policy import Policy
from ratelimit_app.stores import Advance, Outcome, Row, store_for
from tests.conftest import NOON
from tests.races import in_processes, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

ALIAS = "ratelimit"
HERE = "tests.stores.test_races"
KEYS = ["k1", "k2", "k3"]


def counts():
    return {row.key.rpartition(":")[2]: row.count for row in Counter.objects.all()}


# One counter --------------------------------------------------------------------------------------


def consume(index, rate, keys, cost=1, algorithm="fixed_window"):
    """Ask once for each key; return the keys that were admitted."""
    policy = Policy.parse(rate, name="race", algorithm=algorithm)
    return [key for key in keys if limiter.consume(policy, key, cost=cost).allowed]


def consume_in_a_transaction(index, rate, keys):
    with transaction.atomic(using=ALIAS):
        return consume(index, rate, keys)


def admitted(answers):
    return collections.Counter(itertools.chain.from_iterable(answers))


@pytest.mark.parametrize(("rate", "cost", "passed"), [("7/min", 1, 7), ("20/min", 3, 6), ("1/min", 1, 1)])
@pytest.mark.parametrize("used", [0, 1], ids=["new", "used"])
def test_threads_are_admitted_exactly_as_often_as_the_quota_allows(clock, rate, cost, passed, used):
    for _ in range(used):
        consume(0, rate, KEYS, cost)
    answers = in_threads(16, lambda index: consume(index, rate, KEYS, cost))
    assert admitted(answers) == {key: passed - used for key in KEYS if passed > used}
    assert counts() == dict.fromkeys(KEYS, passed * cost)


@pytest.mark.parametrize(
    ("rate", "cost", "passed", "used"),
    [("20/min", 1, 20, 0), ("20/min", 3, 6, 1)],
    ids=["new", "used, at a cost"],
)
def test_processes_are_admitted_exactly_as_often_as_the_quota_allows(clock, rate, cost, passed, used):
    for _ in range(used):
        consume(0, rate, KEYS, cost)
    answers = in_processes(3, 8, f"{HERE}:consume", rate, KEYS, cost, frozen_at=NOON)
    assert admitted(answers) == dict.fromkeys(KEYS, passed - used)
    assert counts() == dict.fromkeys(KEYS, passed * cost)


every_algorithm = pytest.mark.parametrize("algorithm", algorithms.names())


@every_algorithm
@pytest.mark.parametrize("used", [0, 4], ids=["new", "used in the window before"])
def test_threads_are_admitted_exactly_by_every_algorithm(clock, algorithm, used):
    clock.advance(-30)
    consume(0, "10/min", ["k"] * used, algorithm=algorithm)
    clock.advance(30)
    left = limiter.peek(Policy.parse("10/min", name="race", algorithm=algorithm), "k").remaining
    answers = in_threads(16, lambda index: consume(index, "10/min", ["k", "k"], algorithm=algorithm))
    assert admitted(answers) == {"k": left}
    recent = {"sliding_window", "sliding_log", "concurrency"}
    assert left == (10 - used if algorithm in recent else 10)


@every_algorithm
def test_processes_are_admitted_exactly_by_every_algorithm(clock, algorithm):
    answers = in_processes(2, 8, f"{HERE}:consume", "9/min", ["k", "k"], 2, algorithm, frozen_at=NOON)
    assert admitted(answers) == {"k": 4}


def consume_mixed(index, calls):
    """Ask limits of all algorithms together, each caller in another order."""
    policies = [Policy.parse("20/min", name=name, algorithm=name) for name in algorithms.names()]
    order = policies[index % len(policies) :] + policies[: index % len(policies)]
    return sum(limiter.consume_all(dict.fromkeys(order, "k")).allowed for _ in range(calls))


def test_limits_of_all_algorithms_together_take_all_or_nothing(clock):
    assert sum(in_threads(8, lambda index: consume_mixed(index, 5))) == 20
    for name in algorithms.names():
        assert limiter.peek(Policy.parse("20/min", name=name, algorithm=name), "k").used == 20


def test_many_calls_of_each_thread_are_admitted_exactly_as_often_as_the_quota_allows(clock):
    answers = in_threads(8, lambda index: consume(index, "100/min", ["k"] * 25))
    assert admitted(answers) == {"k": 100}


def test_calls_that_all_fit_are_all_admitted(clock):
    answers = in_threads(10, lambda index: consume(index, "1000/min", ["k"] * 20))
    assert admitted(answers) == {"k": 200}
    assert counts() == {"k": 200}


@pytest.mark.parametrize("used", [0, 1], ids=["new", "used"])
def test_callers_in_transactions_are_admitted_exactly_as_often_as_the_quota_allows(clock, used):
    for _ in range(used):
        consume(0, "10/min", ["k"])
    answers = in_threads(16, lambda index: consume_in_a_transaction(index, "10/min", ["k"]))
    assert admitted(answers) == {"k": 10 - used}
    assert counts() == {"k": 10}


def test_calls_that_are_refused_keep_none_out_that_fit(clock):
    consume(0, "10/min", ["k"], 6)
    answers = in_threads(16, lambda index: consume(index, "10/min", ["k"], 1 if index % 4 == 0 else 5))
    assert [bool(answer) for answer in answers] == [index % 4 == 0 for index in range(16)]
    assert counts() == {"k": 10}


@pytest.mark.parametrize("used", [0, 1, 5], ids=["new", "used", "full"])
def test_refused_calls_are_told_a_count_that_has_no_room(used):
    rows = [Row(f"k{number}", 0) for number in range(20)]
    step = Advance(rows[0], 0, 1, ceiling=5, expires_at=100)

    def work(index):
        store = store_for(ALIAS)
        return [store.advance(dataclasses.replace(step, row=row)) for row in rows]

    for _ in range(used):
        work(0)
    answers = in_threads(8, work)
    expected = [Outcome(True, count) for count in range(used + 1, 6)] + [Outcome(False, 5)] * (3 + used)
    for outcomes in zip(*answers, strict=True):
        assert sorted(outcomes, key=lambda outcome: (not outcome.fits, outcome.count)) == expected


def test_denied_calls_are_all_counted_where_asked():
    step = Advance(Row("k", 0), 0, 1, ceiling=5, expires_at=100, count_denied=True)
    outcomes = in_threads(16, lambda index: [store_for(ALIAS).advance(step) for _ in range(5)])
    expected = [Outcome(count <= 5, count) for count in range(1, 81)]
    assert sorted(itertools.chain.from_iterable(outcomes), key=lambda outcome: outcome.count) == expected


def test_refunds_among_calls_are_all_given_back():
    store, step = store_for(ALIAS), Advance(Row("k", 0), 0, 1, ceiling=10_000, expires_at=100)
    store.advance(Advance(Row("k", 0), 0, 1_000, ceiling=10_000, expires_at=100))

    def work(index):
        for _ in range(20):
            if index % 2:
                store.refund(step)
            else:
                store.advance(step)

    in_threads(8, work)
    assert counts() == {"k": 1_000}


# Several counters ---------------------------------------------------------------------------------


def advance_all(index, ceilings, calls):
    """Advance rows together, every caller in an order of its own; return how often all of them fitted."""
    orders = list(itertools.permutations(ceilings.items()))
    store, passed = store_for(ALIAS), 0
    for call in range(calls):
        order = orders[(index + call) % len(orders)]
        steps = [Advance(Row(key, 0), 0, 1, ceiling, expires_at=100) for key, ceiling in order]
        outcomes = store.advance_all(steps)
        passed += all(outcome.fits for outcome in outcomes)
    return passed


PAIRS = [
    {"a": 10_000, "b": 10_000},
    {"a": 25, "b": 10_000},
    {"a": 10_000, "b": 25},
    {"a": 10_000, "b": 10_000, "c": 10_000},
    {"a": 40, "b": 10_000, "c": 25},
]
pairs = pytest.mark.parametrize("ceilings", PAIRS, ids=str)


@pairs
@pytest.mark.parametrize("used", [0, 1], ids=["new", "used"])
def test_threads_that_take_several_in_opposite_orders_take_all_or_nothing(ceilings, used):
    advance_all(0, ceilings, used)
    passed = in_threads(8, lambda index: advance_all(index, ceilings, 10))
    expected = min(80 + used, *ceilings.values())
    assert sum(passed) == expected - used
    assert counts() == dict.fromkeys(ceilings, expected)


@pytest.mark.parametrize("ceilings", [PAIRS[1], PAIRS[3]], ids=str)
def test_processes_that_take_several_in_opposite_orders_take_all_or_nothing(ceilings):
    passed = in_processes(2, 4, f"{HERE}:advance_all", ceilings, 25)
    expected = min(200, *ceilings.values())
    assert sum(passed) == expected
    assert counts() == dict.fromkeys(ceilings, expected)


def test_threads_that_take_different_pairs_of_three_take_all_or_nothing():
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "a"), ("c", "b"), ("a", "c")]
    passed = in_threads(6, lambda index: advance_all(index, dict.fromkeys(pairs[index], 50), 30))
    taken = collections.Counter()
    for pair, times in zip(pairs, passed, strict=True):
        taken.update(dict.fromkeys(pair, times))
    assert counts() == +taken
    # A pair is refused only when one of its two is full, so at the end two of the three are.
    assert sorted(taken.values())[1:] == [50, 50]


def consume_all(index, calls):
    """Ask two limits together; return how often both admitted it."""
    user, everyone = Policy.parse("1000/min", name="user"), Policy.parse("20/min", name="everyone")
    order = [(user, "u"), (everyone, "g")] if index % 2 else [(everyone, "g"), (user, "u")]
    return sum(limiter.consume_all(dict(order)).allowed for _ in range(calls))


def test_refused_call_of_a_race_takes_nothing_from_the_other_limit(clock):
    assert sum(in_threads(10, lambda index: consume_all(index, 5))) == 20
    assert counts() == {"u": 20, "g": 20}


def test_refused_call_of_processes_takes_nothing_from_the_other_limit(clock):
    assert sum(in_processes(2, 5, f"{HERE}:consume_all", 5, frozen_at=NOON)) == 20
    assert counts() == {"u": 20, "g": 20}


# Pruning beside traffic ---------------------------------------------------------------------------


def test_pruning_beside_traffic_loses_no_count_and_no_call():
    store = store_for(ALIAS)

    def work(index):
        if index < 2:
            return sum(store.prune(50, 3) for _ in range(40))
        steps = [
            Advance(
                Row(f"k{call % 10}", 60 * (call % 2)), 0, 1, ceiling=10_000, expires_at=10 + 90 * (call % 2)
            )
            for call in range(100)
        ]
        return sum(store.advance(step).fits for step in steps)

    answers = in_threads(6, work)
    assert answers[2:] == [100] * 4
    live = {(row.key, row.window_start): row.count for row in Counter.objects.filter(window_start=60)}
    assert live == {(f"k{number}", 60): 40 for number in (1, 3, 5, 7, 9)}
    while store.prune(50, 100):
        pass
    assert Counter.objects.filter(window_start=0).count() == 0
