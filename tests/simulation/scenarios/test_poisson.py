import random

import pytest

from ratelimit_app.simulation.scenarios import poisson
from ratelimit_app.simulation.trials import limits_of

#: The most within a window, any 2 s and any 60 s that 60 a minute may come to.
PROMISED = {
    "fixed_window": (60, 120, 120),
    "sliding_log": (60, 60, 60),
    "sliding_window": (60, 120, 120),
    "token_bucket": (120, 62, 120),
}


@pytest.fixture(scope="module")
def result():
    return poisson.run(limits_of("60/min", [*PROMISED], None), random.Random(1))


def passed(result):
    """What passed, by the rate and then by the algorithm, beside what came."""
    overview = result.tables[0]
    return {row[0]: dict(zip(overview.headings[1:], row[1:], strict=True)) for row in overview.rows}


def test_all_passes_below_saturation(result):
    figures = passed(result)["0.5/s"]
    assert figures["came"] > 1_600
    assert len(set(figures.values())) == 1


def test_figures_far_above_saturation_are_as_published(result):
    figures = passed(result)["5/s"]
    assert figures["came"] > 17_000
    assert (figures["fixed_window"], figures["sliding_log"]) == (3_600, 3_600)
    assert 3_659 <= figures["token_bucket"] <= 3_660


def test_log_passes_less_than_a_fixed_window_and_a_bucket_more(result):
    for rate in ("1/s", "2/s"):
        figures = passed(result)[rate]
        assert figures["sliding_log"] < figures["fixed_window"] < figures["token_bucket"]


def test_no_algorithm_passes_more_than_it_promises(result):
    assert len(result.tallies) == 16
    for title, tally in result.tallies:
        most = tally.window_peak.most, *(peak.most for peak in tally.peaks)
        pairs = zip(most, PROMISED[title.partition(", ")[2]], strict=True)
        assert all(figure <= promised for figure, promised in pairs), title


@pytest.mark.parametrize("seed", [2, 3])
def test_what_must_hold_of_any_draw_holds(monkeypatch, seed):
    monkeypatch.setattr(poisson, "_RATES", (0.5, 5))
    limits = limits_of("60/min", ["fixed_window", "sliding_log", "token_bucket"], None)
    figures = passed(poisson.run(limits, random.Random(seed)))
    assert len(set(figures["0.5/s"].values())) == 1
    high = figures["5/s"]
    assert (high["fixed_window"], high["sliding_log"]) == (3_600, 3_600)
    assert 3_659 <= high["token_bucket"] <= 3_660


def test_same_seed_gives_the_same_run_and_another_one_another():
    limits = limits_of("60/min", ["fixed_window"], None)
    first, again, other = (poisson.run(limits, random.Random(seed)).tables for seed in (1, 1, 2))
    assert first == again
    assert first != other
