"""One limit asked by one key at one instant: the row change, and the decision that its outcome means."""

import dataclasses
import datetime
import threading

from ratelimit_app import algorithms, overrides, windows
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import MAX_QUOTA
from ratelimit_app.stores import Advance, Outcome, Row, row_key

#: What one debt can be: several of them still fit the column (in nanoseconds it is 18 years).
_LARGEST_DEBT = 2**59

_closing = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What was asked, and the row change that the algorithm plans for it.

    ``count`` is that of its row when it was taken, 0 until then.
    """

    limit: LiveLimit
    key: str
    cost: int
    now: int
    span: algorithms.Span
    advance: Advance
    count: int = 0

    @property
    def row(self) -> Row:
        return self.advance.row

    def refund(self, units: int) -> Advance:
        """Plan to give units back, also more of them than one call would be planned to take."""
        advance = self.advance
        # Of a log, those of any entry: whichever was the last to come.
        logged = advance.logged and dataclasses.replace(advance.logged, expires_at=algorithms.MAX_COUNT)
        amount = min(units * self._change(self.now).amount, algorithms.MAX_COUNT)
        return dataclasses.replace(advance, amount=amount, logged=logged)

    def refund_own(self, units: int, now: int) -> Advance:
        """Plan to give back units of those that this call has taken, but what has come back by itself.

        To be asked of a call that was ``taken``, at an instant that may be long after it.
        """
        change = self._change(now)
        there = max(0, self.count - change.floor)
        return dataclasses.replace(self.advance, amount=min(units * change.amount, there))

    def debt(self, units: int) -> Advance:
        """Plan to take units, whether or not there is room for them."""
        amount = min(min(units, MAX_QUOTA + 1) * self._change(self.now).amount, _LARGEST_DEBT)
        return dataclasses.replace(
            self.advance, amount=amount, ceiling=algorithms.MAX_COUNT, count_denied=False
        )

    def taken(self, outcome: Outcome) -> "Call":
        """Return this call as it was taken."""
        advance, logged = self.advance, self.advance.logged
        if logged and logged.is_held:
            logged = dataclasses.replace(logged, entry=outcome.entry)
        elif logged:
            logged = dataclasses.replace(logged, expires_at=outcome.empty_at)
        return dataclasses.replace(
            self, advance=dataclasses.replace(advance, logged=logged), count=outcome.count
        )

    def _change(self, now: int) -> algorithms.Plan:
        policy = self.limit.policy
        return algorithms.load(policy.algorithm).plan(policy, self.span, 1, now)


@dataclasses.dataclass(slots=True)
class Receipt:
    """A call that was taken, until it is settled; ``is_local`` if only this process has counted it."""

    call: Call
    is_settled: bool = False
    is_local: bool = False

    def close(self) -> bool:
        """Settle it; return whether it was open. Of several threads, one gets a yes."""
        with _closing:
            was_open, self.is_settled = not self.is_settled, True
        return was_open

    @property
    def is_held(self) -> bool:
        """Whether what was taken is only held, and given back when the caller leaves."""
        return self.call.advance.logged is not None and self.call.advance.logged.is_held


def check_final_cost(cost: object) -> None:
    """Raise ``ValueError`` unless a cost is one that a call may have had in the end."""
    if type(cost) is not int or cost < 0:
        raise ValueError(f"cost: a whole number of units from 0, got {cost!r}")


def answer(limit: LiveLimit, key: str, cost: int, now: int) -> Call | Decision:
    """Plan the call by the policy that applies to its key, or decide it where an override does."""
    override = limit.overrides.find(key, now)
    if override and override.effect == overrides.EXEMPT:
        return uncounted(limit.name, key, cost)
    if override and override.effect == overrides.BLOCKED:
        return _blocked(limit, key, cost, now, override.ends_at)
    return plan(_overridden(limit, override), key, cost, now)


def uncounted(limit: str, key: str, cost: int) -> Decision:
    """Allow a call that no limit applies to, or that the database could not count."""
    return Decision(allowed=True, limit=limit, key=key, cost=cost)


def stored_keys(limit: LiveLimit, key: str, now: int) -> set[str]:
    """Return what a key is stored under: by the limit's own policy, and by that of its override."""
    policies = (limit, _overridden(limit, limit.overrides.find(key, now)))
    return {plan(each, key, 1, now).row.key for each in policies}


def plan(limit: LiveLimit, key: str, cost: int, now: int) -> Call:
    """Plan the row change that takes ``cost`` units at an instant (integer microseconds)."""
    policy = limit.policy
    algorithm = algorithms.load(policy.algorithm)
    # Only a calendar window asks for the zone, whose look-up would be a tenth of a plan.
    zone = conf.time_zone if isinstance(policy.window, str) else datetime.timezone.utc
    span = algorithm.span(policy, now, zone)
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


def unavailable(call: Call, wait: float) -> Decision:
    """Refuse a call that could not be counted, for so many seconds."""
    name = call.limit.name
    return Decision(
        allowed=False, limit=name, key=call.key, cost=call.cost, retry_after=wait, unavailable=True
    )


def judge(call: Call, outcome: Outcome, *, taken: bool = False, is_local: bool = False) -> Decision:
    """Turn the outcome of a call into its decision.

    ``taken`` says that what fitted was taken, ``is_local`` that it was in this process alone.
    """
    policy, shadow = call.limit.policy, call.limit.is_shadow
    algorithm = algorithms.load(policy.algorithm)
    verdict = algorithm.judge(policy, call.span, call.cost, call.now, _state(outcome))
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
        receipt=Receipt(call.taken(outcome), is_local=is_local) if taken and outcome.fits else None,
        more_after=_seconds(verdict.more_after),
        at=windows.to_seconds(call.now),
    )


def keep(call: Call, outcome: Outcome) -> Advance | None:
    """Plan for a row to last as long as what is owed in it; ``None`` where it does."""
    policy, advance = call.limit.policy, call.advance
    verdict = algorithms.load(policy.algorithm).judge(policy, call.span, 1, call.now, _state(outcome))
    paid_at = call.now + verdict.reset_after
    if advance.logged or paid_at <= advance.expires_at:
        return None
    kept_until = algorithms.kept_until(paid_at)
    return dataclasses.replace(call.debt(0), floor=0, expires_at=kept_until)


def _overridden(limit: LiveLimit, override: overrides.Override | None) -> LiveLimit:
    """Return the limit with the policy of an override: of the same space, so that what is used is kept."""
    return dataclasses.replace(limit, policy=override.policy) if override and override.policy else limit


def _blocked(limit: LiveLimit, key: str, cost: int, now: int, ends_at: int | None) -> Decision:
    wait = None if ends_at is None else ends_at - now
    return Decision(
        allowed=limit.is_shadow,
        limit=limit.name,
        key=key,
        cost=cost,
        quota=limit.policy.quota,
        remaining=0,
        reset_after=_seconds(wait) or 0.0,
        retry_after=0.0 if limit.is_shadow else _seconds(wait),
        policy=limit.policy,
        shadow=limit.is_shadow,
        over_quota=True,
        more_after=_seconds(wait),
        at=windows.to_seconds(now),
    )


def _state(outcome: Outcome) -> algorithms.State:
    return algorithms.State(
        outcome.count, outcome.weighed, outcome.empty_at, outcome.room_at, outcome.more_at
    )


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else windows.to_seconds(microseconds)
