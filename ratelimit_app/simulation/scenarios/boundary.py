"""The quota just before a window's edge, and again just after it: two seconds in all."""

import random
from collections.abc import Iterator, Sequence

from ratelimit_app.limits import LiveLimit
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.progress import Watch, hidden
from ratelimit_app.simulation.report import Result, Table, summary
from ratelimit_app.simulation.scenarios import edge_of, named
from ratelimit_app.simulation.trials import Tier, Trial, replay
from ratelimit_app.windows import MICROSECONDS

RATE = "60/min"
BURST = None

_SECONDS = 2

#: More calls than that, twice for each algorithm, are nothing to wait for.
_MOST = 1_000_000


def run(limits: Sequence[LiveLimit], rng: random.Random, watch: Watch = hidden) -> Result:
    if limits[0].policy.quota > _MOST:
        raise ValueError(f"a quota of at most {_MOST:,}, got {limits[0].policy.quota:,}")
    trials = [Trial(named(limit), [Tier(limit)]) for limit in limits]
    for limit, trial in zip(limits, trials, strict=True):
        replay(_around(edge_of(limit), limit.policy.quota), [trial])
    quota = limits[0].policy.quota
    plain = summary(
        f"{quota:,} calls in the second before a window's edge, {quota:,} in the one after", trials
    )
    per_minute = [60 // _SECONDS * trial.tally.passed for trial in trials]
    rows = [[*row, figure] for row, figure in zip(plain.rows, per_minute, strict=True)]
    table = Table(plain.title, [*plain.headings, "per minute"], rows)
    return Result([table], [(trial.title, trial.tally) for trial in trials])


def _around(edge: int, quota: int) -> Iterator[Arrival]:
    step = _SECONDS * MICROSECONDS / (2 * quota)
    return (Arrival(edge + round(index * step), "k") for index in range(-quota, quota))
