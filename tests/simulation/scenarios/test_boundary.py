import random

import pytest

from ratelimit_app.simulation.scenarios import boundary
from ratelimit_app.simulation.trials import limits_of

PUBLISHED = {"fixed_window": 120, "sliding_log": 60, "sliding_window": 60, "token_bucket": 61}


def passed(rate, names=(), burst=None):
    result = boundary.run(limits_of(rate, names, burst), random.Random(1))
    return {title: tally.passed for title, tally in result.tallies}


def test_sixty_a_minute_is_as_published():
    assert passed("60/min", [*PUBLISHED]) == PUBLISHED


def test_table_says_it_per_minute_too():
    (table,) = boundary.run(limits_of("60/min", [*PUBLISHED], None), random.Random(1)).tables
    assert {row[0]: row[-1] for row in table.rows} == {name: 30 * most for name, most in PUBLISHED.items()}


def test_bucket_gives_its_capacity_and_what_is_refilled():
    assert passed("100/min", burst=20)["token_bucket, burst 20"] == 23


@pytest.mark.parametrize(("rate", "most"), [("5/s", 10), ("7/hour", 14), ("9/week", 18), ("5/month", 10)])
def test_fixed_window_passes_twice_its_quota_at_any_edge(rate, most):
    assert passed(rate)["fixed_window"] == most
