"""Sliding log: at most ``quota`` units in any span of time as long as the window, exactly.

Each call that was admitted is an entry of a log, and counts until it is a window's length old. An
entry holds the running total of units, so that no entries need to be added up, however many there are.
"""

import datetime

from ratelimit_app.algorithms import (
    Logged,
    Plan,
    Span,
    State,
    Verdict,
    check_no_burst,
    check_one_length,
    kept_until,
)
from ratelimit_app.policy import Policy
from ratelimit_app.windows import to_microseconds

#: A log keeps a row for each call. Running totals of that many units a window last for ever.
_MAX_QUOTA = 1_000_000_000


def check(policy: Policy) -> None:
    check_one_length(policy, "a sliding log")
    check_no_burst(policy, "a sliding log")
    if policy.quota > _MAX_QUOTA:
        raise ValueError(f"rate: a sliding log holds {_MAX_QUOTA:,} units at most, got {policy.quota:,}")


def span(policy: Policy, now: int, zone: datetime.tzinfo) -> Span:
    expires_at = kept_until(expiry(policy, now))
    return Span(start=0, end=expires_at, expires_at=expires_at)


def plan(policy: Policy, span: Span, cost: int, now: int) -> Plan:
    # What is larger than the quota never fits; where it is counted all the same, it is bounded.
    return Plan(
        floor=0,
        amount=min(cost, policy.quota + 1),
        ceiling=policy.quota,
        logged=Logged(now, expiry(policy, now)),
    )


def judge(policy: Policy, span: Span, cost: int, now: int, state: State) -> Verdict:
    return Verdict(
        used=state.count,
        remaining=max(0, policy.quota - state.count),
        reset_after=max(0, state.empty_at - now),
        retry_after=None if cost > policy.quota else max(0, state.room_at - now),
        more_after=max(0, state.more_at - now) if state.count else None,
    )


def expiry(policy: Policy, now: int) -> int:
    """Return when an entry of an instant no longer counts."""
    return now + to_microseconds(float(policy.window))
