import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app.policy import Policy
from tests.algorithms import oracles
from tests.algorithms.bench import Bench, ask, outcomes
from tests.algorithms.oracles import Peek
from tests.conftest import NOON


def parse(rate):
    return Policy.parse(rate, algorithm="sliding_window")


@pytest.mark.parametrize("table", oracles.SLIDING_WINDOW.values(), ids=oracles.SLIDING_WINDOW)
def test_steps_have_the_published_outcomes(table):
    assert outcomes(table) == table.steps


def test_sixty_and_hardly_more_pass_around_the_edge_of_a_minute():
    bench, policy = Bench(), parse("60/min")
    calls = [59 + i / 60 for i in range(60)] + [60 + i / 60 for i in range(60)]
    assert sum(ask(bench, [policy], second).allowed for second in calls) == 60


@pytest.mark.parametrize(
    ("before", "now", "cost", "wait"),
    [
        (10, 0, 1, 6),  # a tenth of the last window's ten is gone after 6 s
        (10, 0, 10, 60),  # all of it, at its end
        (0, 10, 1, 66),  # past the edge: this window's ten begin to count less then
        (0, 10, 10, 120),
        (5, 5, 1, 12),
        (5, 5, 6, 72),  # not in this window at all: in the next one, when a fifth of these five is gone
        (0, 10, 11, None),
    ],
)
def test_wait_reaches_across_the_next_edge(before, now, cost, wait):
    bench, policy = Bench(), parse("10/min")
    bench.rows[policy, (NOON - 60) * 10**6] = before
    bench.rows[policy, NOON * 10**6] = now
    assert ask(bench, [policy], 0, Peek(cost)).retry_after == wait


@pytest.mark.parametrize(("before", "now", "reset"), [(0, 0, 0), (3, 0, 45), (0, 3, 105), (3, 3, 105)])
def test_full_quota_is_back_when_the_last_window_that_counts_is_over(before, now, reset):
    bench, policy = Bench(), parse("10/min")
    bench.rows[policy, (NOON - 60) * 10**6] = before
    bench.rows[policy, NOON * 10**6] = now
    assert ask(bench, [policy], 15, Peek(1)).reset_after == reset


def test_quota_lowered_below_what_is_used_leaves_nothing():
    bench, policy = Bench(), parse("5/min")
    assert ask(bench, [policy], 0, 5).allowed
    lowered = dataclasses.replace(policy, quota=3)
    bench.rows = {(lowered, start): count for (_, start), count in bench.rows.items()}
    refused = ask(bench, [lowered], 5)
    assert (refused.allowed, refused.remaining, refused.retry_after) == (False, 0, 55 + 36)


@pytest.mark.parametrize("rate", ["5/month", "5/year", "5/calendar day", "5/calendar week"])
def test_calendar_window_is_an_error(rate):
    with pytest.raises(ValueError, match="rate: a sliding window has one length"):
        parse(rate)


def test_burst_is_an_error():
    with pytest.raises(ValueError, match="burst: a sliding window has none"):
        Policy.parse("5/min", algorithm="sliding_window", burst=5)


@given(calls=st.lists(st.tuples(st.integers(-40 * 10**6, 60 * 10**6), st.integers(1, 6)), min_size=1))
def test_no_window_admits_more_than_the_quota_though_the_clock_steps_back_over_its_edges(calls):
    bench, policy, now, taken = Bench(), parse("10/min"), NOON * 10**6, {}
    for gap, cost in calls:
        now += gap
        if bench.consume([policy], now, cost).allowed:
            taken[now // (60 * 10**6)] = taken.get(now // (60 * 10**6), 0) + cost
    assert max(taken.values(), default=0) <= 10
