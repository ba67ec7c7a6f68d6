"""Counters in SQLite (3.35 or newer, for RETURNING)."""

import math
import weakref
from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ratelimit_app import clock
from ratelimit_app.algorithms import Weighed
from ratelimit_app.stores.base import Store
from ratelimit_app.stores.rows import Advance, Outcome

T = TypeVar("T")

_ADVANCE = """
INSERT INTO ratelimit_app_counter (key, window_start, count, expires_at)
VALUES (%(key)s, %(window_start)s, %(first)s, %(expires_at)s)
ON CONFLICT (key, window_start) DO UPDATE
SET count = max(count, %(floor)s) + %(amount)s, expires_at = max(expires_at, excluded.expires_at)
WHERE max(count, %(floor)s) + %(amount)s <= %(highest)s
RETURNING count, 0
"""
# The same beside a weighed row. The part of it that still counts takes more than the 64 bits that SQL
# counts in here, so that Python counts it.
_ADVANCE_WEIGHED = """
WITH weighed AS MATERIALIZED (
    SELECT coalesce(max(count), 0) AS count,
        ratelimit_part(coalesce(max(count), 0), %(weight)s, %(scale)s) AS part
    FROM ratelimit_app_counter WHERE key = %(key)s AND window_start = %(weighed_start)s
)
INSERT INTO ratelimit_app_counter (key, window_start, count, expires_at)
SELECT %(key)s, %(window_start)s, %(first)s, %(expires_at)s
FROM weighed WHERE %(first)s + part <= %(highest)s
ON CONFLICT (key, window_start) DO UPDATE
SET count = max(count, %(floor)s) + %(amount)s, expires_at = max(expires_at, excluded.expires_at)
WHERE max(count, %(floor)s) + %(amount)s + (SELECT part FROM weighed) <= %(highest)s
RETURNING count, (SELECT count FROM weighed)
"""
_PRUNE = """
DELETE FROM ratelimit_app_counter WHERE rowid IN (
    SELECT rowid FROM ratelimit_app_counter WHERE expires_at <= %s ORDER BY expires_at LIMIT %s
)
"""
_PRUNE_LOG = """
DELETE FROM ratelimit_app_loggedcall WHERE rowid IN (
    SELECT rowid FROM ratelimit_app_loggedcall WHERE expires_at <= %s ORDER BY expires_at LIMIT %s
)
"""
#: The driver's connections that know ``ratelimit_part``, by Django's.
_with_function: "weakref.WeakKeyDictionary[BaseDatabaseWrapper, object]" = weakref.WeakKeyDictionary()

#: How long the driver's connections wait for a lock, in milliseconds, by Django's: asked once for each.
_busy_timeouts: "weakref.WeakKeyDictionary[BaseDatabaseWrapper, tuple[object, int]]"
_busy_timeouts = weakref.WeakKeyDictionary()


class VendorStore(Store):
    has_clock = False
    # A batch keeps all others out, and who was kept out twice waits for longer each time: with batches of a
    # thousand and rests as long as they, one call in a hundred waited for 80 ms.
    batch = 200
    rest = 19.0
    prune_statements = (_PRUNE_LOG, _PRUNE)

    def connection(self) -> BaseDatabaseWrapper:
        # A file has one writer. A caller that has written holds it, and a second connection would
        # wait for the caller for ever: here the count can only travel with its transaction.
        return connections[self.alias]

    def send_advance(self, connection: BaseDatabaseWrapper, advance: Advance) -> Outcome:
        with connection.cursor() as cursor:
            if advance.weighed:
                _add_function(connection)
            while True:
                cursor.execute(_ADVANCE_WEIGHED if advance.weighed else _ADVANCE, advance.params)
                # Only a statement that was read to its end has ended, and committed. RETURNING is
                # silent about a row that stayed as it was: here, a trip costs nothing.
                moved = cursor.fetchall()
                if moved:
                    return Outcome(advance.holds(*moved[0]), *moved[0])
                met = self.meet(cursor, advance)
                if not met.fits:
                    return met
                # Another process has made room between the two: ask anew.

    def send_until(
        self, until: float, connection: BaseDatabaseWrapper, send: Callable[[BaseDatabaseWrapper], T]
    ) -> T:
        # There is no server that could be waited for but the lock of the file: the driver does so by itself,
        # for as long as it is told to. The caller's own statements wait as before.
        connection.ensure_connection()
        before = _busy_timeout(connection)
        left = math.ceil(max(0.0, until - clock.monotonic()) * 1000)
        if before <= left:
            return send(connection)
        _pragma(connection, f"busy_timeout = {left}")
        try:
            return send(connection)
        finally:
            _pragma(connection, f"busy_timeout = {before}")

    def send_prune(self, connection: BaseDatabaseWrapper, now: int, batch_size: int) -> int:
        deleted = super().send_prune(connection, now, batch_size)
        if connection.get_autocommit():
            # What a batch has written to the WAL, live calls would have to copy into the file.
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
                cursor.fetchall()
        return deleted

    def is_contention(self, error: DatabaseError) -> bool:
        # SQLITE_BUSY, SQLITE_LOCKED and their kinds; Python 3.10 knows no code, only the words.
        return "is locked" in str(error)


def _busy_timeout(connection: BaseDatabaseWrapper) -> int:
    known = _busy_timeouts.get(connection)
    if known is None or known[0] is not connection.connection:
        known = _busy_timeouts[connection] = connection.connection, _pragma(connection, "busy_timeout")
    return known[1]


def _pragma(connection: BaseDatabaseWrapper, pragma: str) -> int:
    with connection.wrap_database_errors:
        (value,) = connection.connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)


def _add_function(connection: BaseDatabaseWrapper) -> None:
    # Once for each: to add it again ends prepared statements, and fails while a cursor is being read.
    if _with_function.get(connection) is not connection.connection:
        connection.connection.create_function("ratelimit_part", 3, _part, deterministic=True)
        _with_function[connection] = connection.connection


def _part(count: int, weight: int, scale: int) -> int:
    return Weighed(0, weight, scale).part(count)
