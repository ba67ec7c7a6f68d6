"""Ten hosts, and then forty, that share one limit before what they call; refused calls are tried again."""

import dataclasses
import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.progress import Watch, hidden
from ratelimit_app.simulation.report import Cell, Result, Table
from ratelimit_app.simulation.scenarios import edge_of, named
from ratelimit_app.simulation.tallies import Tally
from ratelimit_app.simulation.trials import Tier, Trial
from ratelimit_app.windows import MICROSECONDS, to_microseconds

RATE = "300/s"
BURST = 30

_HOSTS = (10, 40)
_SECONDS = 10  # with so many hosts
_RATE = 20.0  # calls a second of each host
_BATCH = 50  # calls at once, of each host, at a time of its own in each
_BATCH_EVERY = 5  # seconds
_RETRIES = 2
_SPANS = (1, 60)

_HEADINGS = [
    "algorithm",
    "hosts",
    "calls",
    "in batches",
    "retries",
    "passed",
    "refused",
    "passed in 1 s",
    "most in 1 s",
    "in a window",
]


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Sending:
    """A call that a host will make: one of its own, one of a batch, or a retry."""

    at: int
    number: int
    kind: str = dataclasses.field(compare=False)
    retries: int = dataclasses.field(default=_RETRIES, compare=False)


class Fleet:
    """What the hosts send, which depends on what is refused."""

    def __init__(self, start: int, rng: random.Random) -> None:
        self._rng = rng
        self._numbers = itertools.count()
        self._sendings: list[Sending] = []
        for phase, hosts in enumerate(_HOSTS):
            for _ in range(hosts):
                self._add_host(start + phase * _SECONDS * MICROSECONDS)
        heapq.heapify(self._sendings)

    def __iter__(self) -> Iterator[Sending]:
        while self._sendings:
            yield heapq.heappop(self._sendings)

    def refused(self, sending: Sending, decision: Decision) -> None:
        """Try again, as told and a little later than told, until a call has been refused too often."""
        if sending.retries and decision.retry_after is not None:
            wait = to_microseconds(decision.retry_after + self._rng.random())
            again = Sending(sending.at + wait, next(self._numbers), "retry", sending.retries - 1)
            heapq.heappush(self._sendings, again)

    def _add_host(self, start: int) -> None:
        second = self._rng.expovariate(_RATE)
        while second < _SECONDS:
            self._add(start, second, "call")
            second += self._rng.expovariate(_RATE)
        for earliest in range(0, _SECONDS, _BATCH_EVERY):
            second = earliest + self._rng.random() * _BATCH_EVERY
            for _ in range(_BATCH):
                self._add(start, second, "batch")

    def _add(self, start: int, second: float, kind: str) -> None:
        self._sendings.append(Sending(start + to_microseconds(second), next(self._numbers), kind))


def run(limits: Sequence[LiveLimit], rng: random.Random, watch: Watch = hidden) -> Result:
    seed = rng.random()
    rows: list[list[Cell]] = []
    tallies = []
    for limit in limits:
        trial = Trial(named(limit), [Tier(limit, for_everyone=True)], spans=_SPANS)
        rows += _try(trial, limit, random.Random(seed))  # noqa: S311 (each meets the same hosts)
        tallies.append((trial.title, trial.tally))
    few, many = _HOSTS
    title = f"{few} hosts, then {many}, share one limit; each sends {_RATE:g}/s and batches of {_BATCH}"
    return Result([Table(title, _HEADINGS, rows)], tallies)


def _try(trial: Trial, limit: LiveLimit, rng: random.Random) -> list[list[Cell]]:
    start = edge_of(limit)
    sent = {hosts: Counter[str]() for hosts in _HOSTS}
    tallies = {hosts: Tally(limit.policy.window, _SPANS) for hosts in _HOSTS}
    fleet = Fleet(start, rng)
    for sending in fleet:
        phase = math.floor((sending.at - start) / MICROSECONDS / _SECONDS)
        hosts = _HOSTS[min(phase, len(_HOSTS) - 1)]
        arrival = Arrival(sending.at, "fleet")
        decision = trial.take(arrival)
        sent[hosts][sending.kind] += 1
        # Retries go on when the hosts have ended: what passes then is not of the rate that they met.
        sent[hosts]["in time"] += decision.allowed and phase < len(_HOSTS)
        tallies[hosts].add(arrival, passed=decision.allowed)
        if not decision.allowed:
            fleet.refused(sending, decision)
    return [[trial.title, hosts, *_figures(sent[hosts], tallies[hosts])] for hosts in _HOSTS]


def _figures(sent: Counter[str], tally: Tally) -> list[Cell]:
    kinds = [sent[kind] for kind in ("call", "batch", "retry")]
    rate = round(sent["in time"] / _SECONDS)
    return [*kinds, tally.passed, tally.refused, rate, tally.peaks[0].most, tally.window_peak.most]
