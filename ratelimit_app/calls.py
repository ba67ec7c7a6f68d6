"""One limit asked by one key at one instant: the row change, and the decision that its outcome means."""

import dataclasses

from ratelimit_app import algorithms, windows
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import MAX_QUOTA
from ratelimit_app.stores import Advance, Outcome, Row, row_key


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What was asked, and the row change that the algorithm plans for it."""

    limit: LiveLimit
    key: str
    cost: int
    now: int
    span: algorithms.Span
    advance: Advance

    @property
    def row(self) -> Row:
        return self.advance.row

    @property
    def refund(self) -> Advance:
        """What gives all of the cost back, though a call that never fits is planned as a smaller one."""
        policy = self.limit.policy
        unit = algorithms.load(policy.algorithm).plan(policy, self.span, 1, self.now).amount
        return dataclasses.replace(self.advance, amount=min(self.cost * unit, algorithms.MAX_COUNT))


def plan(limit: LiveLimit, key: str, cost: int, now: int) -> Call:
    """Plan the row change that takes ``cost`` units at an instant (integer microseconds)."""
    policy = limit.policy
    algorithm = algorithms.load(policy.algorithm)
    span = algorithm.span(policy, now, conf.time_zone)
    # Whatever costs more than any quota is refused alike, and fits the column where it is counted.
    change = algorithm.plan(policy, span, min(cost, MAX_QUOTA + 1), now)
    advance = Advance(
        row=Row(row_key(limit.space, policy.algorithm, policy.window_text, key), span.start),
        floor=change.floor,
        amount=change.amount,
        ceiling=change.ceiling,
        expires_at=span.expires_at,
        weighed=change.weighed,
        logged=change.logged,
        most=change.most,
        count_denied=limit.count_denied,
    )
    return Call(limit, key, cost, now, span, advance)


def judge(call: Call, outcome: Outcome) -> Decision:
    """Turn the outcome of a call into its decision."""
    policy, shadow = call.limit.policy, call.limit.is_shadow
    algorithm = algorithms.load(policy.algorithm)
    state = algorithms.State(outcome.count, outcome.weighed, outcome.empty_at, outcome.room_at)
    verdict = algorithm.judge(policy, call.span, call.cost, call.now, state)
    allowed = outcome.fits or shadow
    return Decision(
        allowed=allowed,
        limit=policy.name,
        key=call.key,
        cost=call.cost,
        quota=policy.quota,
        remaining=verdict.remaining,
        reset_after=windows.to_seconds(verdict.reset_after),
        retry_after=0.0 if allowed else _seconds(verdict.retry_after),
        used=verdict.used,
        policy=policy,
        shadow=shadow,
        over_quota=not outcome.fits,
    )


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else windows.to_seconds(microseconds)
