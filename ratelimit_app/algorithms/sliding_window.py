"""Sliding window: the count of this window, plus the part of the last one that is recent enough.

The weighted counter of two fixed windows: of the last window's row counts the part that is less than
a window's length ago, as if its calls had come evenly. That part is never rounded down.
"""

import datetime

from ratelimit_app import windows
from ratelimit_app.algorithms import Plan, Span, State, Verdict, Weighed, check_no_burst, check_one_length
from ratelimit_app.policy import Policy


def check(policy: Policy) -> None:
    check_one_length(policy, "a sliding window")
    check_no_burst(policy, "a sliding window")


def span(policy: Policy, now: int, zone: datetime.tzinfo) -> Span:
    start, end = windows.bounds(policy.window, now, zone)
    return Span(start, end, expires_at=end + (end - start))


def plan(policy: Policy, span: Span, cost: int, now: int) -> Plan:
    return Plan(floor=0, amount=cost, ceiling=policy.quota, weighed=_last(span, now))


def judge(policy: Policy, span: Span, cost: int, now: int, state: State) -> Verdict:
    used = state.count + _last(span, now).part(state.weighed)
    remaining = max(0, policy.quota - used)
    gone_at = span.end if state.weighed else now
    if state.count:
        gone_at = span.end + span.length
    return Verdict(
        used=used,
        remaining=remaining,
        reset_after=gone_at - now,
        retry_after=_wait(policy, span, cost, now, state),
        more_after=_wait(policy, span, remaining + 1, now, state),
    )


def _last(span: Span, now: int) -> Weighed:
    return Weighed(span.start - span.length, weight=span.end - now, scale=span.length)


def _wait(policy: Policy, span: Span, cost: int, now: int, state: State) -> int | None:
    if cost > policy.quota:
        return None
    room = policy.quota - state.count - cost
    if room >= 0:
        return max(0, _decayed(state.weighed, room, span.end, span.length) - now)
    # Not in this window: in the next one, where this count is the one that decays.
    return (
        max(span.end, _decayed(state.count, policy.quota - cost, span.end + span.length, span.length)) - now
    )


def _decayed(count: int, room: int, end: int, length: int) -> int:
    """Return the instant from which the part of a count that decays until ``end`` is at most ``room``."""
    return end - room * length // count if count else end - length
