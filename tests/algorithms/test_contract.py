"""What holds for every algorithm, also for those that are yet to come."""

import datetime
import sys

import http_sf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_bakery import baker

from ratelimit_app import algorithms, limiter
from ratelimit_app.headers import ietf
from ratelimit_app.models import Limit
from ratelimit_app.policy import Policy
from ratelimit_app.windows import MICROSECONDS
from tests.algorithms import oracles
from tests.algorithms.bench import Bench, outcomes
from tests.conftest import NOON
from tests.test_readme import blocks

UTC = datetime.timezone.utc
START = NOON * MICROSECONDS

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


def play(name, quota_and_window, calls, **manner):
    """Make the calls; return the bench, the policy and the instant after them."""
    bench, policy, now = Bench(**manner), Policy("p", name, *quota_and_window), START
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
    verdict = bench.verdict(policy, START, cost=5)
    assert verdict == algorithms.Verdict(used=0, remaining=5, reset_after=0, retry_after=0, more_after=None)
    assert bench.verdict(policy, START, cost=6).retry_after is None


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_verdict_is_of_whole_numbers_that_are_never_negative(name, policy, calls):
    bench, policy, now = play(name, policy, calls)
    verdict = bench.verdict(policy, now)
    figures = [verdict.used, verdict.remaining, verdict.reset_after, verdict.retry_after]
    figures += [] if verdict.more_after is None else [verdict.more_after]
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
def test_more_can_be_had_when_it_says_and_not_before(name, policy, calls):
    bench, policy, now = play(name, policy, calls)
    verdict = bench.verdict(policy, now)
    more = verdict.more_after
    assert (more is None) == (verdict.remaining == policy.quota)
    if more is not None:
        assert more > 0
        assert bench.verdict(policy, now + more - 1).remaining == verdict.remaining
        assert bench.verdict(policy, now + more).remaining > verdict.remaining


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS, count_denied=st.booleans())
def test_wait_of_one_unit_that_is_refused_is_the_one_for_more(name, policy, calls, count_denied):
    bench, policy, now = play(name, policy, calls, count_denied=count_denied)
    verdict = bench.verdict(policy, now)
    assert verdict.remaining > 0 or verdict.retry_after == verdict.more_after


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS, other=st.sampled_from(algorithms.names()), count_denied=st.booleans())
def test_refusal_never_says_to_come_before_there_is_more_of_what_is_used_up(
    name, policy, calls, other, count_denied
):
    bench, now = Bench(count_denied=count_denied), START
    policies = [Policy("p", name, *policy), Policy("q", other, 20, 60)]
    for gap, cost in calls:
        now += gap
        decision = bench.consume(policies, now, cost)
        fields = ietf.fields(decision.parts)
        for _, state in http_sf.parse(fields["RateLimit"].encode(), tltype="list"):
            if decision.retry_after_seconds is not None and state["r"] == 0:
                assert decision.retry_after_seconds >= state["t"]


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_row_that_has_expired_makes_no_difference(name, policy, calls):
    kept, pruned, policy, now = Bench(), Bench(), Policy("p", name, *policy), START
    for gap, cost in calls:
        now += gap
        pruned.prune(now)
        assert pruned.consume([policy], now, cost) == kept.consume([policy], now, cost)


@every_algorithm
@settings(deadline=None)
@given(policy=POLICIES, calls=CALLS)
def test_no_window_of_any_kind_admits_more_than_twice_the_quota(name, policy, calls):
    bench, policy, now = Bench(), Policy("p", name, *policy), START
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


@pytest.fixture
def _once(tmp_path, monkeypatch):
    """Put the module that the README shows into the folder."""
    module = next(block for block in blocks("python") if "algorithms/once.py" in block)
    (tmp_path / "once.py").write_text(module)
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(tmp_path)])
    yield
    monkeypatch.undo()
    algorithms.load.cache_clear()
    sys.modules.pop("ratelimit_app.algorithms.once")
    del algorithms.once


ONCE = oracles.Table(
    ("3/s",),
    [(0, 4, False, 3, None), (0, 2, True, 1, 0), (60, 2, False, 1, None), (60, 1, True, 0, 0)],
    algorithm="once",
)


@pytest.mark.usefixtures("_once")
def test_algorithm_that_is_put_into_the_folder_counts_on_the_bench():
    assert "once" in algorithms.names()
    assert outcomes(ONCE) == ONCE.steps


@pytest.mark.django_db
@pytest.mark.usefixtures("_once")
def test_algorithm_that_is_put_into_the_folder_counts_in_the_database_and_is_offered_to_staff(clock):
    assert ("once", "once") in Limit._meta.get_field("algorithm").flatchoices
    baker.make(Limit, name="invitations", rate="3/s", algorithm="once").full_clean()

    def ask(at, cost, key):
        clock.advance(NOON + at - clock.now)
        return limiter.consume("invitations", key, cost=cost)

    assert oracles.play(ONCE, ask) == ONCE.steps
