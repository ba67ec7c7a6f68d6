"""Limits on trial: the real algorithms on counters of their own, in memory."""

import dataclasses
from collections.abc import Iterable, Sequence

from ratelimit_app import algorithms, calls
from ratelimit_app.decision import Decision, combine
from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import Policy
from ratelimit_app.simulation.arrivals import Arrival
from ratelimit_app.simulation.tallies import Tally
from ratelimit_app.stores.memory import MemoryStore

#: Expired rows that one arrival clears away at most: more than it can leave behind.
_PRUNED_AT_ONCE = 1_000


@dataclasses.dataclass(frozen=True, slots=True)
class Tier:
    """A limit in a trial: for each key by itself, or one for everyone."""

    limit: LiveLimit
    for_everyone: bool = False

    def plan(self, arrival: Arrival) -> calls.Call:
        key = "global" if self.for_everyone else arrival.key
        return calls.plan(self.limit, key, self.limit.cost, arrival.at)


class Trial:
    """One or several limits that decide as one, all or nothing, and the tally of what they did."""

    def __init__(self, title: str, tiers: Sequence[Tier], *, spans: Sequence[float] = (2, 60)) -> None:
        self.title = title
        self.tally = Tally(tiers[-1].limit.policy.window, spans)
        self._tiers = tiers
        self._store = MemoryStore()

    def take(self, arrival: Arrival) -> Decision:
        """Decide about an arrival, none of which may be earlier than the one before, and count it."""
        self._store.prune(arrival.at, _PRUNED_AT_ONCE)
        planned = [tier.plan(arrival) for tier in self._tiers]
        outcomes = self._store.advance_all([call.advance for call in planned])
        decision = combine([calls.judge(*pair) for pair in zip(planned, outcomes, strict=True)])
        self.tally.add(arrival, passed=decision.allowed)
        return decision


def replay(arrivals: Iterable[Arrival], trials: Sequence[Trial]) -> None:
    """Put each arrival to all of the trials."""
    for arrival in arrivals:
        for trial in trials:
            trial.take(arrival)


def limits_of(rate: str, names: Sequence[str], burst: int | None) -> list[LiveLimit]:
    """Make a limit of a rate for each algorithm named, or for all that can count that rate if none is.

    A burst goes to the algorithms that have one. Raises ``ValueError`` where that leaves none.
    """
    if burst is not None and names and not any(map(_has_burst, names)):
        raise ValueError(f"burst: {', '.join(names)} {'has' if len(names) == 1 else 'have'} none")
    return [limit_of(_policy(rate, name, burst)) for name in names or _able(rate)]


def limit_of(policy: Policy) -> LiveLimit:
    """Make a limit of a policy."""
    return LiveLimit(policy, space=f"{policy.name}@simulation")


def _policy(rate: str, name: str, burst: int | None) -> Policy:
    return Policy.parse(rate, algorithm=name, burst=burst if _has_burst(name) else None)


def _has_burst(name: str) -> bool:
    try:
        Policy.parse("1/s", algorithm=name, burst=1)
    except ValueError:
        return False
    return True


def _able(rate: str) -> list[str]:
    able, error = [], None
    for name in filter(_counts_by_time, algorithms.names()):
        try:
            able.append(Policy.parse(rate, algorithm=name).algorithm)
        except ValueError as unable:
            error = unable
    if error and not able:
        raise error
    return able


def _counts_by_time(algorithm: str) -> bool:
    """Tell whether arrivals alone say what happens, and not how long each of them stays."""
    return not algorithms.holds(algorithm)
