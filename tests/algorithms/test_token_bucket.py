import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app.policy import Policy
from tests.algorithms import oracles
from tests.algorithms.bench import Bench, admitted, ask, outcomes
from tests.algorithms.oracles import Peek
from tests.conftest import NOON


def parse(rate, burst=None):
    return Policy.parse(rate, algorithm="token_bucket", burst=burst)


@pytest.mark.parametrize("table", oracles.TOKEN_BUCKET.values(), ids=oracles.TOKEN_BUCKET)
def test_steps_have_the_published_outcomes(table):
    assert outcomes(table) == table.steps


@pytest.mark.parametrize(("taken", "reset"), [(5, 5), (3, 3), (1, 1), (0, 0)])
def test_full_bucket_is_back_when_its_tokens_are(taken, reset):
    bench, policy = Bench(), parse("1/s", burst=5)
    for _ in range(taken):
        ask(bench, [policy], 0)
    assert ask(bench, [policy], 0, Peek(1)).reset_after == reset


def test_fractions_of_a_token_are_kept():
    assert admitted(Bench(), parse("54/min", burst=20), range(60)) == 60


@pytest.mark.parametrize(("seconds", "passed"), [(0, 20), (2, 23), (60, 120)])
def test_burst_and_what_is_refilled_pass_and_no_more(seconds, passed):
    policy = parse("100/min", burst=20)
    calls = sorted([i / 100 for i in range(seconds * 100 + 1)] * 30)
    assert admitted(Bench(), policy, calls) == passed


def test_sixty_and_one_pass_around_the_edge_of_a_minute():
    calls = [59 + i / 60 for i in range(60)] + [60 + i / 60 for i in range(60)]
    assert admitted(Bench(), parse("60/min"), calls) == 61


def test_clock_that_steps_back_grants_nothing():
    bench, policy = Bench(), parse("2/min")
    assert admitted(bench, policy, [0, 0]) == 2
    assert admitted(bench, policy, [-3600, -60, -1, 0, -86400]) == 0
    assert ask(bench, [policy], -60, Peek(1)).retry_after == 90


def test_what_is_used_runs_past_a_bucket_that_owes_for_refused_calls():
    bench, policy = Bench(count_denied=True), parse("5/min")
    used = [ask(bench, [policy], 0, 2).used for _ in range(6)]
    assert used == [2, 4, 6, 8, 10, 10]
    assert ask(bench, [policy], 66.5, Peek(1)).used == 5


def test_quota_that_is_edited_keeps_the_time_that_is_owed():
    bench, policy = Bench(), parse("60/min", burst=10)
    assert admitted(bench, policy, [0] * 10) == 10
    owed = bench.rows.popitem()[1]
    lowered = dataclasses.replace(policy, quota=30)
    bench.rows[lowered, 0] = owed
    assert ask(bench, [lowered], 0, Peek(1)).remaining == 5


def test_denied_calls_that_count_keep_who_knocks_out_for_longer():
    bench, policy = Bench(count_denied=True), parse("1/min")
    assert [ask(bench, [policy], second).allowed for second in (0, 1)] == [True, False]
    assert ask(bench, [policy], 2, Peek(1)).retry_after == 118


def test_bucket_that_counts_denied_calls_owes_no_more_than_it_holds_and_is_kept_as_long():
    bench, policy = Bench(count_denied=True), parse("60/min", burst=10)
    for _ in range(50):
        ask(bench, [policy], 0)
    assert ask(bench, [policy], 0, Peek(1)).retry_after == 11
    assert min(bench.expiry.values()) >= (NOON + 20) * 10**6


@pytest.mark.parametrize(
    ("rate", "burst", "message"),
    [
        ("5/month", None, "rate: a token bucket refills evenly"),
        ("5/calendar day", None, "rate: a token bucket refills evenly"),
        ("1/day", 8_000, "burst: a bucket of 8,000 takes more than 20 years"),
        ("1/36525 days", None, "rate: a bucket of 1 takes more than 20 years"),
    ],
)
def test_what_it_cannot_do_is_an_error(rate, burst, message):
    with pytest.raises(ValueError, match=message):
        parse(rate, burst)


@given(
    quota=st.integers(1, 1_000),
    burst=st.integers(1, 50),
    gaps=st.lists(st.integers(0, 10**7), min_size=1, max_size=60),
)
def test_no_span_admits_more_than_the_burst_and_what_refills_in_it(quota, burst, gaps):
    bench, policy, now, passed = Bench(), parse(f"{quota}/min", burst), NOON * 10**6, []
    for gap in gaps:
        now += gap
        if bench.consume([policy], now).allowed:
            passed.append(now)
    for i, first in enumerate(passed):
        for j, last in enumerate(passed[i:], 1):
            assert j <= burst + (last - first) * quota / (60 * 10**6)
