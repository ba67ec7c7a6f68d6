"""Log lines that are written once per interval, however often their cause recurs."""

import logging
from collections.abc import Sequence

from ratelimit_app import clock

#: Seconds during which a recurring cause is not reported again.
INTERVAL = 60.0

#: How many causes of one message are told apart: callers may choose what it speaks of, without end.
MOST = 100

#: Characters by which they are told apart.
_LENGTH = 200

logger = logging.getLogger("ratelimit_app")

#: When each cause was last reported, by the message.
_reported: dict[str, dict[tuple[str, ...], float]] = {}


def report(
    level: int, message: str, *args: object, seen: Sequence[object] = (), exc_info: bool = False
) -> bool:
    """Log a message unless the same one, with the same arguments, was logged within a minute.

    ``seen`` are further arguments for the message, which visitors choose: what was seen this time.
    Returns whether it was logged.
    """
    is_due = _is_due(_reported.setdefault(message, {}), tuple(str(arg)[:_LENGTH] for arg in args))
    if is_due:
        logger.log(level, message, *args, *seen, exc_info=exc_info)
    return is_due


def _is_due(reported: dict[tuple[str, ...], float], cause: tuple[str, ...]) -> bool:
    now = clock.monotonic()
    if now - reported.get(cause, -INTERVAL) < INTERVAL:
        return False
    if len(reported) >= MOST:
        for old in [old for old, at in list(reported.items()) if now - at >= INTERVAL]:
            reported.pop(old, None)
    if len(reported) >= MOST:
        return False
    reported[cause] = now
    return True


def name_of(function: object) -> str:
    """Return what a report calls a project's function."""
    return getattr(function, "__qualname__", repr(function))


def forget() -> None:
    """Report everything anew, because what was wrong may have been mended."""
    _reported.clear()
