"""The limits as the process knows them: read every ``RATELIMIT_REFRESH`` seconds, not at every request.

An edit in this process shows at once: in its own transaction before the commit, everywhere else
after it.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable
from typing import Any

from django.db import connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from ratelimit_app import limits, outages, windows
from ratelimit_app.conf import conf
from ratelimit_app.models import Limit
from ratelimit_app.outages import Unanswered
from ratelimit_app.reporting import forget

_MESSAGE = "The limits' database %r %s: the limits known before stay"


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    at: int
    snapshot: limits.Snapshot
    edit: object

    def is_fresh(self, now: int) -> bool:
        # Threads read the clock in one order and come here in another, and a clock may be set back.
        is_young = abs(now - self.at) < windows.to_microseconds(conf.refresh)
        return is_young and self.edit is _edit


class _OpenEdit(threading.local):
    """The transaction of this thread that has edited limits and has not ended."""

    alias: str = ""
    blocks: list[object] = []
    reading: _Reading | None = None


#: May be taken twice by one thread: to read the limits imports their key functions, whose module may
#: ask the limiter.
_lock = threading.RLock()
_reading: _Reading | None = None
#: Another object after each edit: a reading that was begun before it is not fresh.
_edit = object()
_open_edit = _OpenEdit()


def current(now: int) -> limits.Snapshot:
    """Return the limits as of an instant (integer microseconds since the epoch)."""
    if _in_open_edit():
        return _read_in_edit(now)
    reading = _reading
    if reading is None or not reading.is_fresh(now):
        return _read(now)
    return reading.snapshot


def known(now: int) -> limits.Snapshot | None:
    """Return the limits as of an instant, ``None`` where they would have to be read."""
    reading = _reading
    if reading is None or _open_edit.blocks or not reading.is_fresh(now):
        return None
    return reading.snapshot


def drop(**kwargs: Any) -> None:
    """Read the limits anew at the next look, whatever their age."""
    global _edit
    _edit = object()
    forget()


def edited(using: str, **kwargs: Any) -> None:
    """Take note that a limit or an override was saved or deleted by this thread."""
    drop()
    connection = connections[using]
    if connection.in_atomic_block:
        _open_edit.alias = using
        _open_edit.blocks = list(connection.atomic_blocks)
        _open_edit.reading = None
        transaction.on_commit(drop, using=using)


def _read(now: int) -> limits.Snapshot:
    """Read the limits for the whole process; meanwhile the other threads go on with what they have.

    They wait if that is from before an edit.
    """
    global _reading
    before = _reading
    must_wait = before is None or before.edit is not _edit or conf.refresh == 0
    if not _lock.acquire(blocking=must_wait) and before is not None:
        return before.snapshot
    try:
        reading = _reading
        if reading is None or not reading.is_fresh(now):
            edit = _edit
            reading = _reading = _Reading(now, _load(reading, _read_committed), edit)
        return reading.snapshot
    finally:
        _lock.release()


def _load(before: _Reading | None, read: Callable[[], limits.Rows]) -> limits.Snapshot:
    try:
        return limits.load(read())
    except Unanswered:
        return before.snapshot if before else limits.load_declared()


def _read_committed() -> limits.Rows:
    """Read what is committed by now, whatever the caller's transaction sees."""
    alias = router.db_for_write(Limit)
    return outages.ask(alias, lambda store: store.retry(_read_guarded), message=_MESSAGE)


def _read_edited() -> limits.Rows:
    """Read what the transaction that edited limits sees."""
    alias = _open_edit.alias
    return outages.ask(alias, lambda store: _read_guarded(connections[alias]), message=_MESSAGE)


def _read_guarded(connection: BaseDatabaseWrapper) -> limits.Rows:
    """Read in a way that keeps a query that fails from breaking the caller's transaction."""
    if not connection.in_atomic_block:
        return limits.read(connection)
    with transaction.atomic(using=connection.alias):
        return limits.read(connection)


def _in_open_edit() -> bool:
    """Tell whether this thread is still inside the transaction that edited limits.

    A part of it that was rolled back, or a test that has ended, leaves only what is around it. Django
    tells nobody of a rollback: what has ended shows by its blocks, which are gone or others by now.
    """
    if not _open_edit.blocks:
        return False
    pairs = zip(_open_edit.blocks, connections[_open_edit.alias].atomic_blocks, strict=False)
    still_open = [block for block, _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs)]
    if len(still_open) < len(_open_edit.blocks):
        _open_edit.blocks, _open_edit.reading = still_open, None
    return bool(still_open)


def _read_in_edit(now: int) -> limits.Snapshot:
    if _open_edit.reading is None or not _open_edit.reading.is_fresh(now):
        edit = _edit
        snapshot = _load(_open_edit.reading, _read_edited)
        _open_edit.reading = _Reading(now, snapshot, edit)
    return _open_edit.reading.snapshot
