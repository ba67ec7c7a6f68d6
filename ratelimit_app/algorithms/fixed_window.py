"""Fixed window: at most ``quota`` units in each window ``[start, end)``, starting anew at its edge.

One row per window. Windows of a length in seconds are aligned to the Unix epoch, calendar windows
to midnight in the time zone. Across an edge, twice the quota may pass within a short time.
"""

import datetime

from ratelimit_app import windows
from ratelimit_app.algorithms import Plan, Span, State, Verdict, check_no_burst
from ratelimit_app.policy import Policy


def check(policy: Policy) -> None:
    check_no_burst(policy, "a fixed window")


def span(policy: Policy, now: int, zone: datetime.tzinfo) -> Span:
    start, end = windows.bounds(policy.window, now, zone)
    _, expires_at = windows.bounds(policy.window, end, zone)
    return Span(start, end, expires_at)


def plan(policy: Policy, span: Span, cost: int, now: int) -> Plan:
    return Plan(floor=0, amount=cost, ceiling=policy.quota)


def judge(policy: Policy, span: Span, cost: int, now: int, state: State) -> Verdict:
    remaining = max(0, policy.quota - state.count)
    until_end = span.end - now
    return Verdict(
        used=state.count,
        remaining=remaining,
        reset_after=until_end if state.count else 0,
        retry_after=_wait(policy, cost, remaining, until_end),
        more_after=_wait(policy, remaining + 1, remaining, until_end),
    )


def _wait(policy: Policy, cost: int, remaining: int, until_end: int) -> int | None:
    if cost > policy.quota:
        return None
    return 0 if cost <= remaining else until_end
