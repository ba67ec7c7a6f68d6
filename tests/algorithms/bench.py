"""Rows in memory that are moved as a store moves them, to try an algorithm without a database."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from ratelimit_app import algorithms, windows
from ratelimit_app.decision import Decision, combine
from ratelimit_app.policy import Policy
from tests.algorithms import oracles
from tests.algorithms.oracles import Peek, Table
from tests.conftest import NOON


class Bench:
    """One key's rows, one or more for each policy."""

    def __init__(
        self,
        *,
        key: str = "k",
        count_denied: bool = False,
        zone: datetime.tzinfo = datetime.timezone.utc,
    ) -> None:
        self.key = key
        self.count_denied = count_denied
        self.zone = zone
        self.rows: dict[tuple[Policy, int], int] = {}
        self.expiry: dict[tuple[Policy, int], int] = {}
        self.logs: dict[Policy, list[tuple[int, int]]] = {}

    def consume(self, policies: Sequence[Policy], now: int, cost: int = 1) -> Decision:
        """Take the cost from all of the policies or from none, at an instant in microseconds."""
        fits = [self._fits(policy, now, cost) for policy in policies]
        for policy, fit in zip(policies, fits, strict=True):
            if all(fits) or (self.count_denied and not fit and self._counts(policy, now, cost)):
                self._move(policy, now, cost)
        return self._judge(policies, now, cost, fits)

    def peek(self, policies: Sequence[Policy], now: int, cost: int = 1) -> Decision:
        """Tell what ``consume`` would answer."""
        return self._judge(policies, now, cost, [self._fits(policy, now, cost) for policy in policies])

    def prune(self, now: int) -> None:
        """Forget the rows that have expired by an instant."""
        for row in [row for row, expires_at in self.expiry.items() if expires_at <= now]:
            del self.rows[row], self.expiry[row]
        for log in self.logs.values():
            log[:] = [(expires_at, units) for expires_at, units in log if expires_at > now]

    def _fits(self, policy: Policy, now: int, cost: int) -> bool:
        return self._after(policy, now, cost) <= self._plan(policy, now, cost).ceiling

    def _counts(self, policy: Policy, now: int, cost: int) -> bool:
        return self._after(policy, now, cost) <= self._plan(policy, now, cost).most

    def _after(self, policy: Policy, now: int, cost: int) -> int:
        plan = self._plan(policy, now, cost)
        state = self._state(policy, now, cost)
        part = plan.weighed.part(state.weighed) if plan.weighed else 0
        return max(state.count, plan.floor) + plan.amount + part

    def _move(self, policy: Policy, now: int, cost: int) -> None:
        span, plan = self._span(policy, now), self._plan(policy, now, cost)
        if plan.logged:
            log = self.logs.setdefault(policy, [])
            log.append((max([plan.logged.expires_at, *(expires_at for expires_at, _ in log)]), plan.amount))
            return
        row = policy, span.start
        self.rows[row] = max(self._count(policy, now), plan.floor) + plan.amount
        self.expiry[row] = max(self.expiry.get(row, span.expires_at), span.expires_at)

    def _judge(self, policies: Sequence[Policy], now: int, cost: int, fits: list[bool]) -> Decision:
        return combine(
            [self._decision(policy, now, cost, fit) for policy, fit in zip(policies, fits, strict=True)]
        )

    def _decision(self, policy: Policy, now: int, cost: int, fits: bool) -> Decision:
        verdict = self.verdict(policy, now, cost)
        wait = None if verdict.retry_after is None else windows.to_seconds(verdict.retry_after)
        return Decision(
            allowed=fits,
            limit=policy.name,
            key=self.key,
            cost=cost,
            quota=policy.quota,
            remaining=verdict.remaining,
            reset_after=windows.to_seconds(verdict.reset_after),
            retry_after=0.0 if fits else wait,
            used=verdict.used,
            policy=policy,
            more_after=None if verdict.more_after is None else windows.to_seconds(verdict.more_after),
            at=windows.to_seconds(now),
        )

    def verdict(self, policy: Policy, now: int, cost: int = 1) -> algorithms.Verdict:
        """Let the algorithm judge the row as it is."""
        state = self._state(policy, now, cost)
        return algorithms.load(policy.algorithm).judge(policy, self._span(policy, now), cost, now, state)

    def _state(self, policy: Policy, now: int, cost: int) -> algorithms.State:
        plan = self._plan(policy, now, cost)
        if plan.logged:
            return self._logged(policy, plan, plan.logged.now)
        beside = self.rows.get((policy, plan.weighed.window_start), 0) if plan.weighed else 0
        return algorithms.State(self._count(policy, now), beside)

    def _logged(self, policy: Policy, plan: algorithms.Plan, now: int) -> algorithms.State:
        live = [entry for entry in self.logs.get(policy, []) if entry[0] > now]
        used = sum(units for _, units in live)
        return algorithms.State(
            used,
            empty_at=max((expires_at for expires_at, _ in live), default=0),
            room_at=_left_at(live, plan.ceiling - plan.amount),
            more_at=_left_at(live, min(used, plan.ceiling) - 1),
        )

    def _count(self, policy: Policy, now: int) -> int:
        return self.rows.get((policy, self._span(policy, now).start), 0)

    def _plan(self, policy: Policy, now: int, cost: int) -> algorithms.Plan:
        return algorithms.load(policy.algorithm).plan(policy, self._span(policy, now), cost, now)

    def _span(self, policy: Policy, now: int) -> algorithms.Span:
        return algorithms.load(policy.algorithm).span(policy, now, self.zone)


def _left_at(live: list[tuple[int, int]], most: int) -> int:
    """Return when so many units are left at most, 0 if they are or if all that expire leave more."""
    at, left = 0, sum(units for _, units in live)
    for expires_at, units in live:
        if left <= most:
            break
        at, left = expires_at, left - units
    return at


def ask(bench: Bench, policies: Sequence[Policy], second: float, cost: int = 1) -> Decision:
    """Ask for a cost, or only look if it is a ``Peek``, so many seconds past noon."""
    question = bench.peek if isinstance(cost, Peek) else bench.consume
    return question(policies, windows.to_microseconds(NOON + second), int(cost))


def admitted(bench: Bench, policy: Policy, seconds: Iterable[float]) -> int:
    """Make a call at each of the seconds; return how many passed."""
    return sum(ask(bench, [policy], second).allowed for second in seconds)


def outcomes(table: Table) -> list[tuple[Any, ...]]:
    """Play the steps of a table, each key on a bench of its own; return them with what came of them."""
    benches: dict[str, Bench] = {}

    def ask_bench(at: float, cost: int, key: str) -> Decision:
        bench = benches.setdefault(key, Bench(key=key, count_denied=table.count_denied))
        return ask(bench, table.policies, at, cost)

    return oracles.play(table, ask_bench)
