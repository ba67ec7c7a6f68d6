"""Sixty minutes of calls that come at random, at rates below and above the limit."""

import random
from collections.abc import Iterator, Sequence

from ratelimit_app.limits import LiveLimit
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.progress import Watch, hidden
from ratelimit_app.simulation.report import Cell, Result, Table, summary
from ratelimit_app.simulation.scenarios import edge_of, named
from ratelimit_app.simulation.trials import Tier, Trial, replay
from ratelimit_app.windows import to_microseconds

RATE = "60/min"
BURST = None

_RATES = (0.5, 1, 2, 5)
_SECONDS = 3_600


def run(limits: Sequence[LiveLimit], rng: random.Random, watch: Watch = hidden) -> Result:
    tried = {rate: _try(limits, rate, rng) for rate in _RATES}
    rows: list[list[Cell]] = [
        [f"{rate:g}/s", trials[0].tally.came, *(trial.tally.passed for trial in trials)]
        for rate, trials in tried.items()
    ]
    title = "Passed of what came in 60 minutes, at random"
    overview = Table(title, ["rate", "came", *(named(limit) for limit in limits)], rows)
    tallies = [(f"{rate:g}/s, {trial.title}", trial.tally) for rate in _RATES for trial in tried[rate]]
    return Result([overview, *(summary(f"At {rate:g}/s", tried[rate]) for rate in _RATES)], tallies)


def _try(limits: Sequence[LiveLimit], rate: float, rng: random.Random) -> list[Trial]:
    trials = [Trial(named(limit), [Tier(limit)]) for limit in limits]
    replay(_at_random(edge_of(limits[0]), rate, rng), trials)
    return trials


def _at_random(start: int, rate: float, rng: random.Random) -> Iterator[Arrival]:
    second = rng.expovariate(rate)
    while second < _SECONDS:
        yield Arrival(start + to_microseconds(second), "k")
        second += rng.expovariate(rate)
