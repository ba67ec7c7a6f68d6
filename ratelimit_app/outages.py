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

from django.db import DatabaseError, Error, InterfaceError, OperationalError

from ratelimit_app import clock, signals, statistics
from ratelimit_app.reporting import report
from ratelimit_app.stores import Row, Store, TimeOver, database_of, store_for

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
#: By alias: how many questions in a row have met a lock, when the last answer came, and the last lock.
_locks_in_a_row: dict[str, int] = {}
_answered_at: dict[str, float] = {}
_locked_at: dict[str, float] = {}


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
        is_busy = _is_busy(store, error)
        if rows or not is_busy:  # what is locked besides counters keeps nobody from those
            _note_lock(alias, began, is_busy)
            _leave_alone(alias, rows, error, is_busy)
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
        _locks_in_a_row.clear()
        _answered_at.clear()
        _locked_at.clear()


def _pass_by(alias: str, rows: Iterable[Row]) -> None:
    """Raise ``Unanswered`` for what is left alone, unless it is this caller's turn to ask."""
    now = clock.monotonic()
    with _lock:
        for subject in (_of(alias), _of(alias, rows)):
            left = _left_alone.get(subject)
            if left is None:
                continue
            if now < left.until:
                statistics.count("passed_by")
                raise Unanswered(is_busy=left.is_busy)
            left.until = now + RETRY_EVERY


def _note_lock(alias: str, began: float, is_busy: bool) -> None:
    """Count a lock among those in a row, unless others were answered meanwhile: then it is of these rows."""
    with _lock:
        answered_at = _answered_at.get(alias, -math.inf)
        if answered_at >= min(began, _locked_at.get(alias, math.inf)):
            _locks_in_a_row[alias] = 0
        if answered_at < began:
            _locks_in_a_row[alias] = _locks_in_a_row.get(alias, 0) + is_busy
        _locked_at[alias] = clock.monotonic()


def _leave_alone(alias: str, rows: Iterable[Row], error: Error, is_busy: bool) -> None:
    now = clock.monotonic()
    with _lock:
        subject = _of(alias, rows)
        if _locks_in_a_row[alias] >= _LOCKS_OF_ALL or not is_busy:
            subject = _of(alias)
        for old in [old for old, left in _left_alone.items() if left.until + RETRY_EVERY < now]:
            del _left_alone[old]
        # Another error than these is answered as fast as any question, and may be of these rows alone.
        if isinstance(error, OperationalError | InterfaceError) and len(_left_alone) < _MOST_SUBJECTS:
            _left_alone[subject] = _LeftAlone(now + RETRY_EVERY, is_busy)


def _come_back(alias: str, rows: Iterable[Row]) -> None:
    with _lock:
        _left_alone.pop(_of(alias), None)
        _left_alone.pop(_of(alias, rows), None)


def _of(alias: str, rows: Iterable[Row] = ()) -> Hashable:
    # Of two aliases of one database the second one does not wait, too.
    return database_of(alias), frozenset(rows)


def _is_busy(store: Store, error: Error) -> bool:
    if isinstance(error, TimeOver):
        return error.is_busy
    return isinstance(error, DatabaseError) and store.is_contention(error)


def _tell(alias: str, error: Error, is_busy: bool, message: str) -> None:
    statistics.count("busy" if is_busy else "unanswered")
    what = "was locked for too long" if is_busy else "does not answer"
    if report(logging.ERROR, message, alias, what, exc_info=True):
        signals.outage.send_robust(sender=alias, error=error, is_busy=is_busy)
