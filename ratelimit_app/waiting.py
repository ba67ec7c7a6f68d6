"""To wait for one's turn, and to hold something for the length of a block."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType

from ratelimit_app import algorithms, clock
from ratelimit_app.coroutines import in_thread
from ratelimit_app.decision import Decision
from ratelimit_app.exceptions import RateLimited

#: Seconds between two looks at what others hold: it comes back without a word.
LOOK_EVERY = 0.5

Take = Callable[[], Decision]


def wait(take: Take, max_wait: float) -> Decision:
    """Take when there is room: sleep until then, and never longer than ``max_wait`` seconds in all."""
    left = _checked(max_wait)
    while (pause := _pause(decision := take(), left)) is not None:
        clock.sleep(pause)
        left -= pause
    return decision


async def wait_async(take: Callable[[], Awaitable[Decision]], max_wait: float) -> Decision:
    """Wait as ``wait`` does, and let others go on meanwhile."""
    left = _checked(max_wait)
    while (pause := _pause(decision := await take(), left)) is not None:
        await clock.sleep_async(pause)
        left -= pause
    return decision


def _checked(max_wait: float) -> float:
    if isinstance(max_wait, bool) or not isinstance(max_wait, int | float) or not max_wait >= 0:
        raise ValueError(f"max_wait: a number of seconds from 0, got {max_wait!r}")
    return max_wait


def _pause(decision: Decision, left: float) -> float | None:
    """Return the seconds until another try is worth it; ``None`` where it is not."""
    if decision.allowed or decision.retry_after is None:
        return None
    if _is_held_by_others(decision):
        return min(decision.retry_after, LOOK_EVERY, left) or None
    return decision.retry_after if decision.retry_after <= left else None


def _is_held_by_others(decision: Decision) -> bool:
    """Tell whether what is missing may come back at any moment, long before it expires."""
    policy = decision.policy
    return policy is not None and decision.used > 0 and algorithms.holds(policy.algorithm)


class Limited:
    """A block that runs only where a limit allows it, for ``with`` and ``async with``.

    Entering it takes, and raises ``RateLimited`` where the limit refuses; the block gets the decision.
    Leaving it gives back what is only held, as by a limit of how many run at once. Threads and tasks
    may share it: each leaves what it has entered itself.
    """

    def __init__(self, take: Take, leave: Callable[[Decision], None]) -> None:
        self._take = take
        self._leave = leave
        self._inside: dict[object, list[Decision]] = {}

    def __enter__(self) -> Decision:
        return self._entered(self._take())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(self._left())

    async def __aenter__(self) -> Decision:
        return self._entered(await in_thread(self._take, undo=self._leave)())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self._leave)(self._left())

    def _entered(self, decision: Decision) -> Decision:
        if not decision.allowed:
            raise RateLimited(decision)
        self._inside.setdefault(_caller(), []).append(decision)
        return decision

    def _left(self) -> Decision:
        caller = _caller()
        if caller not in self._inside:
            # The event loop leaves in a task of its own what a stream has left open.
            caller = next(iter(self._inside))
        decision = self._inside[caller].pop()
        if not self._inside[caller]:
            del self._inside[caller]
        return decision


def _caller() -> object:
    """Return the task that is running, or else the thread."""
    with contextlib.suppress(RuntimeError):  # no event loop runs here
        if task := asyncio.current_task():
            return task
    return threading.get_ident()
