"""Token bucket: at most ``burst`` tokens, refilled evenly at ``quota`` per window.

It is the generic cell rate algorithm (GCRA; ITU-T I.371): the row holds one instant, in integer
nanoseconds, at which the bucket is full again. A call moves that instant on by what its tokens take
to refill, unless it would then be further ahead than a whole bucket. No fraction of a token is lost,
and a clock that steps back finds the instant where it was.
"""

import datetime

from ratelimit_app.algorithms import Plan, Span, State, Verdict, kept_until
from ratelimit_app.policy import Policy
from ratelimit_app.windows import MICROSECONDS, to_microseconds

_NANOSECONDS = 1_000  # in a microsecond

#: Twenty years, in nanoseconds: an instant two of them ahead, and another one on top, fit 64 bits.
_LONGEST = 20 * 31_557_600 * MICROSECONDS * _NANOSECONDS


def check(policy: Policy) -> None:
    if isinstance(policy.window, str):
        raise ValueError(f"rate: a token bucket refills evenly, not by the calendar {policy.window}")
    if _bucket(policy) > _LONGEST:
        field = "rate" if policy.burst is None else "burst"
        raise ValueError(f"{field}: a bucket of {_capacity(policy):,} takes more than 20 years to refill")


def span(policy: Policy, now: int, zone: datetime.tzinfo) -> Span:
    # A bucket that counts refused calls too may owe as much as it holds.
    expires_at = kept_until(now + _microseconds(2 * _bucket(policy)))
    return Span(start=0, end=expires_at, expires_at=expires_at)


def plan(policy: Policy, span: Span, cost: int, now: int) -> Plan:
    instant = now * _NANOSECONDS
    # What is larger than the bucket never fits; where it is counted all the same, it is bounded.
    tokens = min(cost, _capacity(policy) + 1)
    bucket = _bucket(policy)
    return Plan(
        floor=instant,
        amount=tokens * _token(policy),
        ceiling=instant + bucket,
        most=instant + 2 * bucket,
    )


def judge(policy: Policy, span: Span, cost: int, now: int, state: State) -> Verdict:
    missing = max(0, state.count - now * _NANOSECONDS)
    remaining = max(0, _bucket(policy) - missing) // _token(policy)
    return Verdict(
        used=-(-missing // _token(policy)),
        remaining=remaining,
        reset_after=_microseconds(missing),
        retry_after=_wait(policy, cost, missing),
        more_after=_wait(policy, remaining + 1, missing),
    )


def _wait(policy: Policy, cost: int, missing: int) -> int | None:
    if cost > _capacity(policy):
        return None
    return _microseconds(max(0, missing + cost * _token(policy) - _bucket(policy)))


def _capacity(policy: Policy) -> int:
    return policy.quota if policy.burst is None else policy.burst


def _token(policy: Policy) -> int:
    """Return the nanoseconds that one token takes to refill, rounded up: late, and never early."""
    window = to_microseconds(float(policy.window)) * _NANOSECONDS
    return -(-window // policy.quota)


def _bucket(policy: Policy) -> int:
    return _capacity(policy) * _token(policy)


def _microseconds(nanoseconds: int) -> int:
    return -(-nanoseconds // _NANOSECONDS)
