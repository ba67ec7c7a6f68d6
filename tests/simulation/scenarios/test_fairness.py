import contextlib
import random

import pytest

from ratelimit_app import algorithms
from ratelimit_app.policy import Policy
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.scenarios import fairness
from ratelimit_app.simulation.trials import Tier, Trial, limit_of, limits_of
from tests.conftest import NOON


@pytest.mark.parametrize("rate", ["60/min", "60/36525 days"])
def test_progress_is_told_of_every_decision_of_which_no_rate_takes_more(monkeypatch, rate):
    monkeypatch.setattr(fairness, "_HIS_CALLS", 80)
    monkeypatch.setattr(fairness, "_CALLS_OF_OTHERS", 20)
    sizes, told = [], []

    def watch(size):
        sizes.append(size)
        return contextlib.nullcontext(told.append)

    fairness.run(limits_of(rate, ["fixed_window", "sliding_log"], None), random.Random(1), watch)
    assert sizes == [sum(told)] == [2 * 4 * 100]


@pytest.fixture(scope="module")
def rows():
    (table,) = fairness.run(limits_of("60/min", ["fixed_window"], None), random.Random(1)).tables
    return [dict(zip(table.headings[1:], row[1:], strict=True)) for row in table.rows]


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_log", "sliding_window"])
def test_rate_of_a_hundred_years_lets_one_quota_through(monkeypatch, algorithm):
    monkeypatch.setattr(fairness, "_HIS_CALLS", 1_000)
    monkeypatch.setattr(fairness, "_CALLS_OF_OTHERS", 980)
    limits = limits_of("6/36525 days", [algorithm], None)
    (table,) = fairness.run(limits, random.Random(1)).tables
    assert [row[2] for row in table.rows] == [6, 6 * 50, 6 * 5, 6 * 3]


def test_one_limit_for_everyone_starves_the_others(rows):
    figures = rows[0]
    assert (figures["limits"], figures["passed"]) == ("one for everyone", 1_800)
    assert figures["his"] + figures["the others'"] == 1_800
    assert 150 < figures["the others'"] < 300
    assert float(figures["others refused"].removesuffix(" %")) > 90


def test_limit_of_each_user_refuses_nobody_else(rows):
    assert rows[1] | {"in a window": 0} == {
        "limits": "one per user",
        "passed": 6_155,
        "his": 1_800,
        "the others'": 4_355,
        "others refused": "0.0 %",
        "in a window": 0,
    }


def test_both_limits_protect_the_others_and_the_total(rows):
    figures = rows[2]
    assert figures["limits"] == "both, 300 for everyone"
    assert (figures["his"], figures["the others'"]) == (1_800, 4_355)
    assert figures["in a window"] <= 300


def test_tight_limit_for_everyone_is_kept_and_costs_the_others_little(rows):
    figures = rows[3]
    assert (figures["limits"], figures["in a window"]) == ("both, 180 for everyone", 180)
    assert figures["passed"] <= 30 * 180
    assert figures["his"] <= 1_800
    assert float(figures["others refused"].removesuffix(" %")) < 25


def tight(algorithm):
    """A limit of 6 a minute for each user, and of 10 a minute for everyone."""
    own, shared = (Policy.parse(rate, name=rate, algorithm=algorithm) for rate in ("6/min", "10/min"))
    return Trial("both", [Tier(limit_of(own)), Tier(limit_of(shared), for_everyone=True)])


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_what_one_is_refused_takes_nothing_from_everyones_limit(algorithm):
    trial = tight(algorithm)
    calls = [Arrival(NOON * 1_000_000, key) for key in ["greedy"] * 100 + ["a", "b", "c", "d", "e"]]
    passed = [arrival.key for arrival in calls if trial.take(arrival).allowed]
    assert passed == ["greedy"] * 6 + ["a", "b", "c", "d"]


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_what_everyones_limit_refuses_takes_nothing_from_a_users(algorithm):
    trial = tight(algorithm)
    at = NOON * 1_000_000
    for key in ["a"] * 5 + ["b"] * 5 + ["c"] * 100:
        trial.take(Arrival(at, key))
    later = at + 121_000_000
    assert sum(trial.take(Arrival(later, "c")).allowed for _ in range(7)) == 6
