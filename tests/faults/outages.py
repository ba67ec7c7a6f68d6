"""What callers were told while something was broken, and when it had been mended."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.callers import Answer

#: Seconds for which something stays broken: two whole seconds of the clock at least, after the first answers.
_BROKEN = 3.1

#: Seconds after which all is to be as it was, and in which it is looked at: one whole second at least.
RECOVERY = 2.0
LOOK = 2.1


@dataclass(frozen=True)
class Outage:
    """The instants, in seconds since the epoch, and the answers to all who have asked since it began."""

    began: float
    mending: float
    mended: float
    ended: float
    answers: Sequence[Answer]

    def told(self, limit: str, kind: str) -> list[Answer]:
        """Return what a kind of callers has asked a limit, and was told, while all was broken."""
        return [
            each
            for each in self.of(limit, kind)
            if self.began <= each.start and each.start + each.took <= self.mending
        ]

    def of(self, limit: str, kind: str) -> list[Answer]:
        return [each for each in self.answers if each.limit == limit and each.caller.startswith(kind)]

    @property
    def recovered(self) -> float:
        return self.mended + RECOVERY


def watch(answers: list[Answer], fault: contextlib.AbstractContextManager[None], *, look: float) -> Outage:
    """Break something for a while; return what was answered from then on until so long after it."""
    first = len(answers)
    with fault:
        began = time.time()
        time.sleep(_BROKEN)
        mending = time.time()
    mended = time.time()
    time.sleep(look)
    return Outage(began, mending, mended, time.time(), answers[first:])


def whole_seconds(start: float, end: float) -> range:
    """Return the seconds of the clock that lie within a time."""
    return range(-int(-start // 1), int(end))
