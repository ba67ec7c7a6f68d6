"""Concurrency: at most ``quota`` units held at once, each until it is given back.

The window is the time to live: what a killed process has held is free when it is that old. Until
something is given back it counts as a sliding log does, and waits are for what will have expired.
"""

import dataclasses
import datetime

from ratelimit_app.algorithms import (
    Logged,
    Plan,
    Span,
    State,
    Verdict,
    check_no_burst,
    check_one_length,
    sliding_log,
)
from ratelimit_app.policy import Policy

#: What is taken is given back when the response is closed, or the block ends.
HOLDS = True

#: All that is held at once is added up at each decision.
_MAX_QUOTA = 100_000


def check(policy: Policy) -> None:
    check_one_length(policy, "the time to live of what is held")
    check_no_burst(policy, "a limit of what is held")
    if policy.quota > _MAX_QUOTA:
        raise ValueError(f"rate: at most {_MAX_QUOTA:,} units are held at once, got {policy.quota:,}")


def span(policy: Policy, now: int, zone: datetime.tzinfo) -> Span:
    return sliding_log.span(policy, now, zone)


def plan(policy: Policy, span: Span, cost: int, now: int) -> Plan:
    change = sliding_log.plan(policy, span, cost, now)
    return dataclasses.replace(change, logged=Logged(now, sliding_log.expiry(policy, now), is_held=True))


def judge(policy: Policy, span: Span, cost: int, now: int, state: State) -> Verdict:
    return sliding_log.judge(policy, span, cost, now, state)
