import random

import pytest

from ratelimit_app.simulation import tallies
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.tallies import Peak, RefusedKeys, Tally, Timeline, WindowPeak
from tests.conftest import NOON

SECOND = 1_000_000


def most(peak, instants):
    for at in instants:
        peak.add(at)
    return peak.most


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([], 0), ([0], 1), ([0, 0, 0], 3), ([0, 1, 2], 2), ([0, 1, 1.9], 3), ([0, 5, 6, 6.5, 30], 3)],
)
def test_peak_is_the_most_within_less_than_its_span(seconds, expected):
    assert most(Peak(2 * SECOND), [int(second * SECOND) for second in seconds]) == expected


def test_peak_is_what_counting_all_spans_gives():
    rng = random.Random(7)
    instants = sorted(rng.randrange(1_000) for _ in range(500))
    counted = max(sum(end - 50 < at <= end for at in instants) for end in instants)
    assert most(Peak(50), instants) == counted


@pytest.mark.parametrize(
    ("window", "seconds", "expected"),
    [(60, [59, 59, 60, 61, 119], 3), ("month", [0, 29 * 86_400, 30 * 86_400], 2), (60, [-61, -59, -1, 0], 2)],
)
def test_window_peak_goes_from_edge_to_edge(window, seconds, expected):
    start = (NOON - 12 * 3_600) * SECOND
    assert most(WindowPeak(window), [start + second * SECOND for second in seconds]) == expected


def test_tally_counts_what_passed_and_what_was_refused():
    tally = Tally(60, [2])
    for second, passed in enumerate([True, True, False, True, False]):
        tally.add(Arrival(NOON * SECOND + second * SECOND, f"k{second}"), passed=passed)
    assert (tally.came, tally.passed, tally.refused) == (5, 3, 2)
    assert (tally.peaks[0].most, tally.window_peak.most) == (2, 3)
    assert tally.refused_keys.most_common(9) == [("k2", 1), ("k4", 1)]
    assert (tally.timeline.passed, tally.timeline.refused) == ([1, 1, 0, 1, 0], [0, 0, 1, 0, 1])


def test_refused_keys_keep_those_refused_most_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(tallies, "_MOST_KEYS", 100)
    refused = RefusedKeys()
    for key in [*["often"] * 50, *(f"k{number}" for number in range(99))]:
        refused.add(key)
    assert refused.is_exact
    for key in (f"m{number}" for number in range(5_000)):
        refused.add(key)
        assert len(refused.most_common(1_000)) <= 100
    assert refused.most_common(1) == [("often", 50)]
    assert not refused.is_exact


def test_refused_keys_are_at_most_20_000():
    refused = RefusedKeys()
    for number in range(1, 45_001):
        refused.add(f"k{number}")
        if number % 5_000 == 0:
            assert len(refused.most_common(number)) <= 20_000


def test_timeline_makes_its_steps_longer_when_they_do_not_reach():
    line, instants = Timeline(), [NOON * SECOND + second * SECOND for second in range(0, 5_000, 3)]
    for number, at in enumerate(instants):
        line.add(at, passed=number % 2 == 0)
    assert len(line.passed) == len(line.refused) <= 512
    assert (sum(line.passed), sum(line.refused)) == (834, 833)
    assert (line.start, line.step) == (NOON * SECOND, 16 * SECOND)
    assert line.passed[0] + line.refused[0] == 6


def test_timeline_of_a_gap_of_years_stays_short():
    line = Timeline()
    for second in (0, 10**9, 2 * 10**9):
        line.add(second * SECOND, passed=True)
    assert sum(line.passed) == 3
    assert len(line.passed) <= 512
