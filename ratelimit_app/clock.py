"""The time: the only module that reads it."""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

#: Seconds until the offset from the database server's clock is measured again.
MEASURE_EVERY = 60.0

#: Seconds until a measurement that failed is made again.
RETRY_AFTER = 1.0

_offset = 0
_next_at = -math.inf
_measuring = threading.Lock()


class VirtualClock(Protocol):
    """A clock that stands still until it is moved."""

    def read(self) -> int: ...

    def advance(self, seconds: float) -> None: ...


#: The virtual time of ``ratelimit_app.testing.frozen_time`` while there is one.
frozen: VirtualClock | None = None


def now() -> int:
    """Return the instant as integer microseconds since the Unix epoch, by the agreed clock."""
    return frozen.read() if frozen else _local() + _offset


def monotonic() -> float:
    """Return seconds that only ever grow, for intervals and deadlines; a frozen time leaves it running."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Let so many seconds pass; a frozen time moves on by them at once."""
    if frozen:
        frozen.advance(seconds)
    else:
        time.sleep(seconds)


async def sleep_async(seconds: float) -> None:
    """Let so many seconds pass, in which others go on."""
    if frozen:
        frozen.advance(seconds)
    else:
        await asyncio.sleep(seconds)


def follow(read_server_time: Callable[[], int]) -> None:
    """Agree with a server's clock, which is read if the last reading is older than a minute.

    ``read_server_time`` returns integer microseconds since the epoch. Half of the time that the
    answer took counts as its way back (Cristian's algorithm).
    """
    global _offset, _next_at
    if not is_due():
        return
    with _measuring:  # the first calls of a process wait for the offset, and count by it
        if not is_due():
            return
        # A server that does not answer is not asked at every call either.
        next_at = monotonic() + RETRY_AFTER
        try:
            read_server_time()  # opens the connection, whose time is nobody's way
            before = _local()
            server_time = read_server_time()
            _offset = server_time - (before + _local()) // 2
            next_at = monotonic() + MEASURE_EVERY
        finally:
            _next_at = next_at


def follow_local() -> None:
    """Take this machine's clock as it is, and forget what was measured."""
    global _offset, _next_at
    _offset, _next_at = 0, -math.inf


def is_due() -> bool:
    """Tell whether the offset from the server's clock is not known, or has to be measured anew."""
    return not frozen and monotonic() >= _next_at


def _local() -> int:
    return time.time_ns() // 1_000
