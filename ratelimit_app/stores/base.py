"""What every store does; a vendor's module adds the few statements that differ."""

import dataclasses
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ratelimit_app import clock
from ratelimit_app.conf import conf
from ratelimit_app.stores.committing import committing_connection, in_transaction
from ratelimit_app.stores.rows import Advance, Outcome, Row

T = TypeVar("T")

#: Seconds of the first pause before a statement that met a lock is sent again; it doubles.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05

# ``key`` is a reserved word of MySQL, but not behind a period.
_READ = "SELECT c.key, c.window_start, c.count FROM ratelimit_app_counter c WHERE "
_READ_ROW = "(c.key = %s AND c.window_start = %s)"
_MEET = """
SELECT coalesce(max(CASE WHEN c.window_start = %(window_start)s THEN c.count END), 0),
    coalesce(max(CASE WHEN c.window_start = %(weighed_start)s THEN c.count END), 0)
FROM ratelimit_app_counter c
WHERE c.key = %(key)s AND c.window_start IN (%(window_start)s, %(weighed_start)s)
"""
_REFUND = """
UPDATE ratelimit_app_counter SET count = CASE WHEN count > %s THEN count - %s ELSE 0 END
WHERE ratelimit_app_counter.key = %s AND window_start = %s
"""
_RESET = "DELETE FROM ratelimit_app_counter WHERE ratelimit_app_counter.key = %s"
_COUNT_EXPIRED = "SELECT count(*) FROM ratelimit_app_counter WHERE expires_at <= %s"


class Store:
    """The counters on one database alias."""

    #: Whether the server has a clock that several hosts can agree on.
    has_clock: ClassVar[bool] = True

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def advance_all(self, advances: Sequence[Advance]) -> list[Outcome]:
        """Move all of the counters or none of them; return an outcome for each, in the order given.

        One counter takes one atomic statement. Several take a transaction, which locks them in one
        order, whatever the order given. Either way it commits on its own.
        """
        if len(advances) < 2:
            return [self.advance(advance) for advance in advances]
        outcomes: dict[Row, Outcome] = {}
        if all(advance.fits(0) for advance in advances):
            outcomes = self.retry(lambda: self._advance_in_transaction(advances))
        outcomes |= self.look([advance for advance in advances if advance.row not in outcomes])
        for advance in advances:
            if advance.count_denied and not outcomes[advance.row].fits:
                # It stays refused, even if there should be room by now.
                outcomes[advance.row] = dataclasses.replace(self.advance(advance), fits=False)
        return [outcomes[advance.row] for advance in advances]

    def advance(self, advance: Advance) -> Outcome:
        """Move one counter by one atomic statement."""
        if not advance.fits(0) and not advance.count_denied:
            # No row has room, and a row that does not exist yet would not be asked.
            return self.look([advance])[advance.row]
        return self.retry(lambda: self.send_advance(self.connection(), advance))

    def read(self, rows: Sequence[Row]) -> dict[Row, int]:
        """Return the counts of rows, 0 for one that does not exist. Writes nothing."""
        if not rows:
            return {}
        sql = _READ + " OR ".join([_READ_ROW] * len(rows))
        found = self.fetch_all(sql, [part for row in rows for part in (row.key, row.window_start)])
        counts = {Row(key, window_start): count for key, window_start, count in found}
        return {row: counts.get(row, 0) for row in rows}

    def look(self, advances: Sequence[Advance]) -> dict[Row, Outcome]:
        """Tell which of the counters could be moved as they are. Writes nothing."""
        weighed = [advance.weighed_row for advance in advances if advance.weighed_row]
        counts = self.read([*(advance.row for advance in advances), *weighed])
        return {
            advance.row: _met(
                advance, counts[advance.row], counts[advance.weighed_row] if advance.weighed_row else 0
            )
            for advance in advances
        }

    def refund(self, row: Row, amount: int) -> None:
        """Take an amount off a counter, down to 0."""
        self.execute(_REFUND, [amount, amount, row.key, row.window_start])

    def reset(self, key: str) -> None:
        """Delete all rows of a stored key."""
        self.execute(_RESET, [key])

    def count_expired(self, now: int) -> int:
        """Count the rows that pruning would delete at an instant."""
        return int(self.fetch_all(_COUNT_EXPIRED, [now])[0][0])

    def prune(self, now: int, batch_size: int) -> int:
        """Delete at most so many rows that have expired by an instant; return how many."""
        return self.retry(lambda: self.send_prune(self.connection(), now, batch_size))

    # What a vendor does in its own way ----------------------------------------------------------

    def send_advance(self, connection: BaseDatabaseWrapper, advance: Advance) -> Outcome:
        """Move one counter by one statement, which is atomic by itself; bring the count back.

        Called in and outside a transaction. A row that is not there is begun without being asked
        whether ``first`` fits: the caller has asked.
        """
        raise NotImplementedError

    def send_prune(self, connection: BaseDatabaseWrapper, now: int, batch_size: int) -> int:
        """Delete a batch of expired rows, leaving alone what others have locked where that can be."""
        raise NotImplementedError

    def server_time(self) -> int:
        """Return the server's clock in microseconds since the epoch, where it has one."""
        raise NotImplementedError

    def is_contention(self, error: DatabaseError) -> bool:
        """Tell whether a statement failed only because another one was in its way."""
        raise NotImplementedError

    def connection(self) -> BaseDatabaseWrapper:
        """Return the connection to send statements on."""
        return committing_connection(self.alias)

    # What both build on -------------------------------------------------------------------------

    def meet(self, cursor: CursorWrapper, advance: Advance) -> Outcome:
        """Read the counts that a refused advance has met."""
        cursor.execute(_MEET, advance.params)
        count, weighed = cursor.fetchone() or (0, 0)
        return _met(advance, count, weighed if advance.weighed else 0)

    def execute(self, sql: str, params: Sequence[str | int]) -> int:
        """Send a statement; return how many rows it changed."""

        def send() -> int:
            with self.connection().cursor() as cursor:
                cursor.execute(sql, params)
                return int(cursor.rowcount)

        return self.retry(send)

    def fetch_all(self, sql: str, params: Sequence[str | int] = ()) -> list[tuple[Any, ...]]:
        """Send a query; return its rows."""

        def send() -> list[tuple[Any, ...]]:
            with self.connection().cursor() as cursor:
                cursor.execute(sql, params)
                return list(cursor.fetchall())

        return self.retry(send)

    def retry(self, send: Callable[[], T]) -> T:
        """Send again what met a lock or a deadlock, for at most ``RATELIMIT_TIMEOUT`` seconds."""
        deadline = clock.monotonic() + conf.timeout
        pause = _FIRST_PAUSE
        while True:
            try:
                return send()
            except DatabaseError as error:
                if not self.is_contention(error) or clock.monotonic() >= deadline:
                    raise
            time.sleep(random.uniform(0, pause))  # noqa: S311 (spreads callers, guards nothing)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _advance_in_transaction(self, advances: Sequence[Advance]) -> dict[Row, Outcome]:
        """Move all rows, or come back with the outcome of the first that has no room, and none moved."""
        connection = self.connection()

        def move() -> tuple[bool, dict[Row, Outcome]]:
            moved = {}
            for advance in sorted(advances, key=lambda advance: advance.row):
                outcome = self.send_advance(connection, advance)
                if not outcome.fits:
                    return False, {advance.row: outcome}
                moved[advance.row] = outcome
            return True, moved

        return in_transaction(connection, move)


def _met(advance: Advance, count: int, weighed: int) -> Outcome:
    return Outcome(advance.fits(count, weighed), count, weighed)
