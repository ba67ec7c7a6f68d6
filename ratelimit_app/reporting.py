"""Log lines that are written once per interval, however often their cause recurs."""

import logging

from ratelimit_app import clock

#: Seconds during which a recurring cause is not reported again.
INTERVAL = 60.0

logger = logging.getLogger("ratelimit_app")

_reported: dict[tuple[object, ...], float] = {}


def report(level: int, message: str, *args: object, exc_info: bool = False) -> None:
    """Log a message unless the same one, with the same arguments, was logged within a minute."""
    cause = (message, *map(str, args))
    now = clock.monotonic()
    if now - _reported.get(cause, -INTERVAL) < INTERVAL:
        return
    if len(_reported) > 1_000:
        _reported.clear()
    _reported[cause] = now
    logger.log(level, message, *args, exc_info=exc_info)


def name_of(function: object) -> str:
    """Return what a report calls a project's function."""
    return getattr(function, "__qualname__", repr(function))


def forget() -> None:
    """Report everything anew, because what was wrong may have been mended."""
    _reported.clear()
