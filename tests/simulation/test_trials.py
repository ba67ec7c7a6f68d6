import pytest

from ratelimit_app import algorithms, limiter
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.trials import Tier, Trial, limits_of, replay
from tests.conftest import NOON


def arrivals(*seconds, key="k"):
    return [Arrival(round((NOON + second) * 1_000_000), key) for second in seconds]


@pytest.mark.django_db
@pytest.mark.parametrize("algorithm", algorithms.names())
def test_trial_decides_what_the_limiter_decides(algorithm, clock):
    (limit,) = limits_of("3/10s", [algorithm], None)
    trial = Trial("t", [Tier(limit)])
    for second in (0, 0, 3, 4, 9.5, 10, 10, 12.5, 14, 100):
        clock.advance(NOON + second - clock.now)
        assert trial.take(arrivals(second)[0]) == limiter.consume(limit, "k")


def test_each_trial_has_counters_of_its_own():
    trials = [Trial("t", [Tier(limit)]) for limit in limits_of("2/min", [], None)]
    replay(arrivals(0, 0, 0), trials)
    assert [trial.tally.passed for trial in trials] == [2] * len(trials)


def test_keys_have_counters_of_their_own_unless_it_is_for_everyone():
    (limit,) = limits_of("1/min", ["fixed_window"], None)
    own, shared = Trial("own", [Tier(limit)]), Trial("shared", [Tier(limit, for_everyone=True)])
    replay(arrivals(0, key="a") + arrivals(0, key="b"), [own, shared])
    assert (own.tally.passed, shared.tally.passed) == (2, 1)


def test_what_has_expired_is_forgotten_on_the_way():
    trials = [Trial("t", [Tier(limit)]) for limit in limits_of("2/min", [], None)]
    replay([Arrival(NOON * 1_000_000 + second * 10**6, f"k{second}") for second in range(3_000)], trials)
    assert all(trial._store.count_expired(2**62) <= 400 for trial in trials)


def test_rate_that_few_can_count_is_tried_by_those():
    able = {limit.policy.algorithm for limit in limits_of("5/month", [], None)}
    assert able & {"fixed_window", "sliding_log", "sliding_window", "token_bucket"} == {"fixed_window"}
    assert len(limits_of("5/min", [], None)) == len(
        [n for n in algorithms.names() if not algorithms.holds(n)]
    )


def test_burst_goes_to_those_that_have_one():
    limits = limits_of("5/min", ["fixed_window", "token_bucket", "sliding_log"], 9)
    assert [limit.policy.burst for limit in limits] == [None, 9, None]


@pytest.mark.parametrize(
    ("rate", "names", "burst", "message"),
    [
        ("5/fortnight", [], None, "rate: unknown unit"),
        ("5/month", ["token_bucket"], None, "rate: a token bucket refills evenly"),
        ("5/min", ["fixed_window", "sliding_log"], 9, "burst: fixed_window, sliding_log have none"),
        ("5/min", ["fixed_window"], 9, "burst: fixed_window has none"),
        ("5/min", ["nosuch"], None, "algorithm: unknown 'nosuch'"),
    ],
)
def test_what_no_algorithm_can_do_is_an_error(rate, names, burst, message):
    with pytest.raises(ValueError, match=message):
        limits_of(rate, names, burst)
