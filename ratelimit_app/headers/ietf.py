"""``RateLimit-Policy`` and ``RateLimit`` (draft-ietf-httpapi-ratelimit-headers-11).

Both are Lists of Strings with Integer parameters (structured fields, RFC 9651): ``q`` the quota, ``w``
the window in seconds, ``r`` the units left, ``t`` the effective window: the seconds until more than ``r``
units can be had. Of a fixed window that is its end; of the others it is earlier than all units are back.
"""

import math
from collections.abc import Sequence

from ratelimit_app.decision import Decision
from ratelimit_app.policy import Policy


def fields(decisions: Sequence[Decision]) -> dict[str, str]:
    """Return the two fields for decisions of single limits; those without a policy have no place in them."""
    limited = [(decision, decision.policy) for decision in decisions if decision.policy]
    if not limited:
        return {}
    return {
        "RateLimit-Policy": ", ".join(_policy(policy) for _, policy in limited),
        "RateLimit": ", ".join(_state(decision) for decision, _ in limited),
    }


def _policy(policy: Policy) -> str:
    # ``w`` is optional, and an Integer: a calendar window has no one length, and half a second is none.
    whole = not isinstance(policy.window, str) and policy.window == int(policy.window)
    window = f";w={policy.window_text}" if whole else ""
    return f"{_string(policy.name)};q={policy.quota}{window}"


def _state(decision: Decision) -> str:
    # ``t`` is optional: where all units are there, no time brings more, and 0 would say that it is now.
    more = "" if decision.more_after is None else f";t={math.ceil(decision.more_after)}"
    return f"{_string(decision.limit)};r={decision.remaining}{more}"


def _string(text: str) -> str:
    """Write a text of printable ASCII as a structured String (RFC 9651, section 4.1.6)."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
