"""Fifty users for half an hour, one of whom makes nine calls in ten: whom a limit protects."""

import dataclasses
import random
from collections.abc import Sequence

from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import Policy
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.progress import Told, Watch, hidden
from ratelimit_app.simulation.report import Cell, Result, Table
from ratelimit_app.simulation.scenarios import edge_of, named
from ratelimit_app.simulation.trials import Tier, Trial, limit_of
from ratelimit_app.windows import MICROSECONDS

RATE = "60/min"
BURST = None

_SECONDS = 1_800
_HIS_CALLS = 35_733
_CALLS_OF_OTHERS = 4_355
_OTHERS = 49
_HE = "user:1"

#: Where both limits are set, the one for everyone is so many times that of a user: wide, and tight.
_FOR_EVERYONE = (5, 3)

_HEADINGS = ["algorithm", "limits", "passed", "his", "the others'", "others refused", "in a window"]


def run(limits: Sequence[LiveLimit], rng: random.Random, watch: Watch = hidden) -> Result:
    arrivals = _draw(edge_of(limits[0]), rng)
    rows: list[list[Cell]] = []
    tallies = []
    trials = [
        (division, Trial(named(limit), tiers))
        for limit in limits
        for division, tiers in divisions(limit).items()
    ]
    with watch(len(trials) * len(arrivals)) as told:
        for division, trial in trials:
            rows.append([trial.title, division, *_try(trial, arrivals, told)])
            tallies.append((f"{trial.title}, {division}", trial.tally))
    title = f"{_OTHERS + 1} users, 30 minutes, {len(arrivals):,} calls, {_HIS_CALLS:,} of them his"
    return Result([Table(title, _HEADINGS, rows)], tallies)


def divisions(limit: LiveLimit) -> dict[str, list[Tier]]:
    """Name the ways to divide a limit: one for everyone, one for each user, and both as one decision."""
    both = {
        f"both, {wider.policy.quota:,} for everyone": [Tier(limit), Tier(wider, for_everyone=True)]
        for wider in (_wider(limit.policy, times) for times in _FOR_EVERYONE)
    }
    return {"one for everyone": [Tier(limit, for_everyone=True)], "one per user": [Tier(limit)], **both}


def _wider(policy: Policy, times: int) -> LiveLimit:
    return limit_of(dataclasses.replace(policy, name="everyone", quota=times * policy.quota, burst=None))


def _draw(start: int, rng: random.Random) -> list[Arrival]:
    keys = [_HE] * _HIS_CALLS
    keys += [f"user:{rng.randint(2, 1 + _OTHERS)}" for _ in range(_CALLS_OF_OTHERS)]
    arrivals = [Arrival(start + rng.randrange(_SECONDS * MICROSECONDS), key) for key in keys]
    return sorted(arrivals, key=lambda arrival: arrival.at)


def _try(trial: Trial, arrivals: Sequence[Arrival], told: Told) -> list[Cell]:
    his = others = 0
    for arrival in arrivals:
        told(1)
        if trial.take(arrival).allowed:
            his += arrival.key == _HE
            others += arrival.key != _HE
    refused = f"{100 * (1 - others / _CALLS_OF_OTHERS):.1f} %"
    return [his + others, his, others, refused, trial.tally.window_peak.most]
