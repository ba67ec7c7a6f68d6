"""The one owner of trouble with the counters' database: it asks, reports, and leaves it alone for a while.

A database that does not answer is asked by one caller a second; all others go without it at once, until it
has answered again. Counters that are locked are left alone in the same way, and not the database.
"""

import dataclasses
import logging
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from django.db import Error, InterfaceError, OperationalError

from ratelimit_app import clock, signals, statistics
from ratelimit_app.reporting import report
from ratelimit_app.stores import Row, Store, database_of, store_for

T = TypeVar("T")

_MESSAGE = "The counters' database %r %s: calls go by their limits' on_error"

#: Seconds after which what did not answer is asked again, by one caller.
RETRY_EVERY = 1.0

#: So many locks in a row, with no answer meanwhile, lock more than their rows.
_LOCKS_OF_ALL = 3

#: More subjects than this are not kept apart: their calls wait, each for its time.
_MOST_SUBJECTS = 1_000

_lock = threading.Lock()


@dataclasses.dataclass(slots=True)
class _LeftAlone:
    until: float
    is_busy: bool


#: What is left alone: databases, and rows of one.
_left_alone: dict[Hashable, _LeftAlone] = {}
#: By alias: when the last answer came, and when questions met the locks in a row since then.
_answered_at: dict[str, float] = {}
_locks_in_a_row: dict[str, list[float]] = {}


class Unanswered(Exception):  # noqa: N818 (it says what happened)
    """The counters could not be asked. ``is_busy``: they were locked; the database answers."""

    def __init__(self, *, is_busy: bool) -> None:
        super().__init__("busy" if is_busy else "no answer")
        self.is_busy = is_busy


def ask(
    alias: str, question: Callable[[Store], T], rows: Sequence[Row] = (), *, message: str = _MESSAGE
) -> T:
    """Put a question to the store of an alias, about these rows; raise ``Unanswered`` where it has no answer.

    Whatever error the database has: a limiter must not stop the site. The message, with the alias and what
    it does, is logged once a minute.
    """
    if _left_alone:
        _pass_by(alias, rows)
    store, began = store_for(alias), clock.monotonic()
    try:
        answer = question(store)
    except Error as error:
        is_busy = store.is_busy(error)
        if rows and is_busy:  # what is locked besides counters keeps nobody from those
            _leave_alone(_of_all(alias, began) or _of(alias, rows), is_busy=True)
        elif not is_busy and isinstance(error, OperationalError | InterfaceError):
            # Another error than these is answered as fast as any question, and may be of these rows alone.
            _leave_alone(_of(alias), is_busy=False)
        _tell(alias, error, is_busy, message)
        raise Unanswered(is_busy=is_busy) from error
    _answered_at[alias] = clock.monotonic()
    if _left_alone:
        _come_back(alias, rows)
    return answer


def forget() -> None:
    """Ask everything again."""
    with _lock:
        _left_alone.clear()
        _answered_at.clear()
        _locks_in_a_row.clear()


def _pass_by(alias: str, rows: Iterable[Row]) -> None:
    """Raise ``Unanswered`` for what is left alone, unless it is this caller's turn to ask."""
    now = clock.monotonic()
    with _lock:
        found = [left for subject in (_of(alias), _of(alias, rows)) if (left := _left_alone.get(subject))]
        for left in found:
            if now < left.until:
                statistics.count("passed_by")
                raise Unanswered(is_busy=left.is_busy)
        for left in found:
            left.until = now + RETRY_EVERY


def _of_all(alias: str, began: float) -> Hashable | None:
    """Return the database if a question has met a lock of all of it; ``None`` if it is of its rows alone."""
    with _lock:
        answered_at = _answered_at.get(alias, -math.inf)
        before = [at for at in _locks_in_a_row.get(alias, ()) if at > answered_at]
        locks = [] if answered_at >= began else [*before, clock.monotonic()]
        _locks_in_a_row[alias] = locks[-_LOCKS_OF_ALL:]
    return _of(alias) if len(locks) >= _LOCKS_OF_ALL else None


def _leave_alone(subject: Hashable, *, is_busy: bool) -> None:
    now = clock.monotonic()
    with _lock:
        for old in [old for old, left in _left_alone.items() if left.until + RETRY_EVERY < now]:
            del _left_alone[old]
        if len(_left_alone) < _MOST_SUBJECTS:
            _left_alone[subject] = _LeftAlone(now + RETRY_EVERY, is_busy)


def _come_back(alias: str, rows: Iterable[Row]) -> None:
    with _lock:
        _left_alone.pop(_of(alias), None)
        _left_alone.pop(_of(alias, rows), None)


def _of(alias: str, rows: Iterable[Row] = ()) -> Hashable:
    # Of two aliases of one database the second one does not wait, too.
    return database_of(alias), frozenset(rows)


def _tell(alias: str, error: Error, is_busy: bool, message: str) -> None:
    statistics.count("busy" if is_busy else "unanswered")
    what = "was locked for too long" if is_busy else "does not answer"
    if report(logging.ERROR, message, alias, what, exc_info=True):
        signals.outage.send_robust(sender=alias, error=error, is_busy=is_busy)
