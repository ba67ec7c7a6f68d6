"""What holds for every algorithm, also for those that are yet to come."""

import datetime
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratelimit_app import algorithms
from ratelimit_app.policy import Policy
from ratelimit_app.windows import MICROSECONDS
from tests.algorithms.bench import Bench

UTC = datetime.timezone.utc
NOON = 1_780_315_200 * MICROSECONDS

every_algorithm = pytest.mark.parametrize("name", algorithms.names())
#: Gaps in microseconds and costs: bursts, short waits, and long ones.
CALLS = st.lists(
    st.tuples(
        st.just(0) | st.integers(0, 5 * MICROSECONDS) | st.integers(0, 300 * MICROSECONDS), st.integers(1, 12)
    ),
    min_size=1,
    max_size=30,
)
POLICIES = st.tuples(st.integers(1, 10), st.sampled_from([0.5, 1, 7, 60, 90.5]))


def play(name, quota_and_window, calls):
    """Make the calls; return the bench, the policy and the instant after them."""
    bench, policy, now = Bench(), Policy("p", name, *quota_and_window), NOON
    for gap, cost in calls:
        now += gap
        bench.consume([policy], now, cost)
    return bench, policy, now


def test_names_are_the_modules_of_the_folder():
    assert "fixed_window" in algorithms.names()
    assert algorithms.names() == sorted(algorithms.names())


@every_algorithm
def test_module_has_the_four_functions(name):
    module = algorithms.load(name)
    assert all(callable(getattr(module, function)) for function in ("check", "span", "plan", "judge"))


@every_algorithm
def test_unused_policy_has_all_of_its_quota(name):
    bench, policy = Bench(), Policy("p", name, 5, 60)
    verdict = bench.verdict(policy, NOON, cost=5)
    assert verdict == algorithms.Verdict(used=0, remaining=5, reset_after=0, retry_after=0)
    assert bench.verdict(policy, NOON, cost=6).retry_after is None


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_verdict_is_of_whole_numbers_that_are_never_negative(name, policy, calls):
    bench, policy, now = play(name, policy, calls)
    verdict = bench.verdict(policy, now)
    figures = [verdict.used, verdict.remaining, verdict.reset_after, verdict.retry_after]
    assert all(type(figure) is int and figure >= 0 for figure in figures)


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_what_remains_fits_and_one_more_does_not(name, policy, calls):
    bench, policy, now = play(name, policy, calls)
    remaining = bench.verdict(policy, now).remaining
    assert remaining == 0 or bench.peek([policy], now, remaining).allowed
    assert not bench.peek([policy], now, remaining + 1).allowed


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS, cost=st.integers(1, 12))
def test_wait_is_right_to_the_microsecond(name, policy, calls, cost):
    bench, policy, now = play(name, policy, calls)
    wait = bench.verdict(policy, now, cost).retry_after
    if wait is None:
        assert cost > policy.quota
        return
    assert (wait == 0) == bench.peek([policy], now, cost).allowed
    assert bench.peek([policy], now + wait, cost).allowed
    assert wait == 0 or not bench.peek([policy], now + wait - 1, cost).allowed


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_full_quota_is_back_at_the_reset_and_not_before(name, policy, calls):
    bench, policy, now = play(name, policy, calls)
    reset = bench.verdict(policy, now).reset_after
    assert bench.verdict(policy, now + reset).remaining == policy.quota
    assert reset == 0 or bench.verdict(policy, now + reset - 1).remaining < policy.quota


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_row_that_has_expired_makes_no_difference(name, policy, calls):
    kept, pruned, policy, now = Bench(), Bench(), Policy("p", name, *policy), NOON
    for gap, cost in calls:
        now += gap
        pruned.prune(now)
        assert pruned.consume([policy], now, cost) == kept.consume([policy], now, cost)


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_no_window_of_any_kind_admits_more_than_twice_the_quota(name, policy, calls):
    bench, policy, now = Bench(), Policy("p", name, *policy), NOON
    taken = []
    for gap, cost in calls:
        now += gap
        if bench.consume([policy], now, cost).allowed:
            taken.append((now, cost))
    for start, _ in taken:
        end = start + policy.window * MICROSECONDS
        assert sum(cost for at, cost in taken if start <= at < end) <= 2 * policy.quota


@pytest.mark.parametrize("name", ["", "nope", "__init__", "fixed_window ", "Fixed_Window", None, 5])
def test_load_of_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"^algorithm: unknown .* \(have: .*fixed_window"):
        algorithms.load(name)


TOY = """
from ratelimit_app.algorithms import Plan, Span, Verdict

def check(policy): pass
def span(policy, now, zone): return Span(0, 2**62, 2**62)
def plan(policy, span, cost, now): return Plan(0, cost, policy.quota)
def judge(policy, span, cost, now, state): return Verdict(state.count, policy.quota - state.count, 0, 0)
"""


@pytest.fixture
def _toy(tmp_path, monkeypatch):
    (tmp_path / "for_ever.py").write_text(TOY)
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    yield
    monkeypatch.undo()
    algorithms.load.cache_clear()
    sys.modules.pop("ratelimit_app.algorithms.for_ever")
    del algorithms.for_ever


@pytest.mark.usefixtures("_toy")
def test_module_that_is_put_into_the_folder_is_found_by_its_name():
    assert "for_ever" in algorithms.names()
    bench, policy = Bench(), Policy.parse("2/s", algorithm="for_ever")
    later = range(NOON, NOON + 4_000 * MICROSECONDS, 1_000 * MICROSECONDS)
    assert [bench.consume([policy], now).allowed for now in later] == [True, True, False, False]
