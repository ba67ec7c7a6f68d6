"""A virtual clock for tests."""

import contextlib
from collections.abc import Iterator

from ratelimit_app import clock as _clock
from ratelimit_app import windows


class FrozenClock:
    """A clock that stands still until it is moved."""

    def __init__(self, seconds: float) -> None:
        self._microseconds = windows.to_microseconds(seconds)

    @property
    def now(self) -> float:
        """The instant in seconds since the Unix epoch."""
        return windows.to_seconds(self._microseconds)

    def advance(self, seconds: float) -> None:
        """Move the clock by so many seconds, backwards if they are negative."""
        self._microseconds += windows.to_microseconds(seconds)

    def read(self) -> int:
        """Return the instant in integer microseconds, as the app reads it."""
        return self._microseconds


@contextlib.contextmanager
def frozen_time(seconds: float) -> Iterator[FrozenClock]:
    """Stop the app's clock at an instant, in seconds since the Unix epoch, in all threads.

    >>> with frozen_time(1_780_315_200) as clock:
    ...     clock.advance(0.5)
    ...     clock.now
    1780315200.5
    """
    before, frozen = _clock.frozen, FrozenClock(seconds)
    _clock.frozen = frozen
    try:
        yield frozen
    finally:
        _clock.frozen = before
