"""The answer to "may this happen now?"."""

import dataclasses
import math
from collections.abc import Sequence

from ratelimit_app.policy import Policy


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """What one limit, or several as one, say of one call.

    ``allowed`` is the answer. ``limit`` and ``key`` say which limit and who; ``cost`` and
    ``quota`` are units. ``remaining`` is the whole units that could still be taken now,
    ``used`` the units counted so far (past the quota where refused calls are counted too).
    ``reset_after`` is the seconds until the full quota is available again if nothing more is
    taken, ``retry_after`` the seconds until this cost would fit: 0.0 when it is allowed, ``None``
    when waiting never helps. ``decisions`` holds the parts of a combined decision, ``policy``
    the policy that was applied. A call that no limit applies to has ``quota``, ``remaining`` and
    ``policy`` ``None``. ``over_quota`` says that the cost did not fit: the call is then refused,
    unless the limit is in ``shadow`` mode, which never refuses. ``more_after`` is the seconds until
    more than ``remaining`` units can be had, ``None`` when there never will be more: all of them are
    there. ``unavailable`` says that it is refused only because the counters could not be asked. ``at`` is
    when it was decided, in seconds since the epoch. ``receipt`` is for ``limiter.settle``: what was taken,
    where something was.
    """

    allowed: bool
    limit: str
    key: str
    cost: int
    quota: int | None = None
    remaining: int | None = None
    reset_after: float = 0.0
    retry_after: float | None = 0.0
    decisions: tuple["Decision", ...] = ()
    used: int = 0
    policy: Policy | None = None
    shadow: bool = False
    over_quota: bool = False
    unavailable: bool = False
    more_after: float | None = None
    at: float = 0.0
    receipt: object = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def parts(self) -> tuple["Decision", ...]:
        """The decisions of the single limits: the parts of a combined one, or itself."""
        return self.decisions or (self,)

    @property
    def retry_after_seconds(self) -> int | None:
        """The wait as ``Retry-After`` says it: whole seconds rounded up, at least 1.

        ``None`` when the call is allowed or waiting never helps (RFC 9110, section 10.2.3).
        """
        if self.allowed or self.retry_after is None:
            return None
        # A limit that has let this request through, and has nothing left for the next one, waits too.
        used_up = [part.more_after or 0.0 for part in self.parts if part.remaining == 0 and not part.shadow]
        return max(1, math.ceil(max([self.retry_after, *used_up])))


def combine(decisions: Sequence[Decision]) -> Decision:
    """Make one decision of several: the tightest limit speaks for all of them.

    Of those that refuse it is the one with the longest wait, otherwise the one with the fewest
    units left; one in shadow mode only if there is no other. One decision alone is its own
    combination.
    """
    if len(decisions) == 1:
        return decisions[0]
    tightest = max(decisions, key=_tightness)
    return dataclasses.replace(tightest, decisions=tuple(decisions))


def _tightness(decision: Decision) -> tuple[bool, bool, float, float]:
    wait = math.inf if decision.retry_after is None else decision.retry_after
    remaining = math.inf if decision.remaining is None else decision.remaining
    return not decision.allowed, not decision.shadow, wait, -remaining
