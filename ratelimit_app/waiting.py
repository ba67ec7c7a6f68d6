"""To wait for one's turn, and to hold something for the length of a block."""

from collections.abc import Callable
from types import TracebackType

from asgiref.sync import sync_to_async

from ratelimit_app import clock
from ratelimit_app.decision import Decision
from ratelimit_app.exceptions import RateLimited

Take = Callable[[], Decision]


def wait(take: Take, max_wait: float) -> Decision:
    """Take when there is room: sleep until then, and never longer than ``max_wait`` seconds in all."""
    left = max_wait
    while (pause := _pause(decision := take(), left)) is not None:
        clock.sleep(pause)
        left -= pause
    return decision


async def wait_async(take: Take, max_wait: float) -> Decision:
    """Wait as ``wait`` does, and let others go on meanwhile."""
    left = max_wait
    while (pause := _pause(decision := await sync_to_async(take)(), left)) is not None:
        await clock.sleep_async(pause)
        left -= pause
    return decision


def _pause(decision: Decision, left: float) -> float | None:
    """Return the seconds until another try is worth it; ``None`` where it is not."""
    if decision.allowed or decision.retry_after is None or decision.retry_after > left:
        return None
    return decision.retry_after


class Limited:
    """A block that runs only where a limit allows it, for ``with`` and ``async with``.

    Entering it takes, and raises ``RateLimited`` where the limit refuses; the block gets the decision.
    Leaving it gives back what is only held, as by a limit of how many run at once.
    """

    def __init__(self, take: Take, leave: Callable[[Decision], None]) -> None:
        self._take = take
        self._leave = leave
        self._decisions: list[Decision] = []

    def __enter__(self) -> Decision:
        decision = self._take()
        if not decision.allowed:
            raise RateLimited(decision)
        self._decisions.append(decision)
        return decision

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(self._decisions.pop())

    async def __aenter__(self) -> Decision:
        return await sync_to_async(self.__enter__)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await sync_to_async(self.__exit__)(kind, error, trace)
