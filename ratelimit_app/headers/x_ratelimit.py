"""``X-RateLimit-Limit``, ``X-RateLimit-Remaining`` and ``X-RateLimit-Reset``, which no standard defines.

They have room for one limit, which is the tightest. The reset is an instant in seconds since the Unix
epoch, as GitHub and Flask-Limiter send it: the one at which the whole limit is there again.
"""

import math
from collections.abc import Sequence

from ratelimit_app.decision import Decision, combine


def fields(decisions: Sequence[Decision]) -> dict[str, str]:
    """Return the three fields of the tightest limit; decisions without a policy have no place in them."""
    limited = [decision for decision in decisions if decision.policy]
    if not limited:
        return {}
    tightest = combine(limited)
    return {
        "X-RateLimit-Limit": str(_most(tightest)),
        "X-RateLimit-Remaining": str(tightest.remaining),
        "X-RateLimit-Reset": str(_reset(tightest)),
    }


def _most(decision: Decision) -> int | None:
    """Return what can remain at most: of a bucket that is its burst."""
    return decision.policy.burst if decision.policy and decision.policy.burst else decision.quota


def _reset(decision: Decision) -> int:
    # A sum of fractions may end above the whole second that it is: instants are whole microseconds.
    return math.ceil(round(decision.at + decision.reset_after, 6))
