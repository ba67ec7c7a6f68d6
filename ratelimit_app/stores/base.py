"""What every store does; a vendor's module adds the few statements that differ."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ratelimit_app.algorithms import Logged
from ratelimit_app.stores import logs
from ratelimit_app.stores.committing import in_transaction
from ratelimit_app.stores.rows import Advance, Outcome, Row
from ratelimit_app.stores.sending import Sender

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
_COUNT_EXPIRED = """
SELECT (SELECT count(*) FROM ratelimit_app_counter WHERE expires_at <= %s)
    + (SELECT count(*) FROM ratelimit_app_loggedcall WHERE expires_at <= %s)
"""
_HAS_EXPIRED = """
SELECT EXISTS (SELECT * FROM ratelimit_app_counter WHERE expires_at <= %s)
    OR EXISTS (SELECT * FROM ratelimit_app_loggedcall WHERE expires_at <= %s)
"""

#: Seconds that a batch may take which nobody waits for.
_PRUNE_SECONDS = 60.0


class Store(Sender):
    """The counters on one database alias."""

    #: Whether the server has a clock that several hosts can agree on.
    has_clock: ClassVar[bool] = True

    #: Rows of a batch that is pruned, unless another number is asked for; and how many times as long as
    #: the batch the rest after it is, in which others come first.
    batch: ClassVar[int] = 1000
    rest: ClassVar[float] = 1.0

    #: What deletes a batch of expired rows of each table: parameters are the instant and the number of rows.
    prune_statements: ClassVar[Sequence[str]]

    def advance_all(self, advances: Sequence[Advance]) -> list[Outcome]:
        """Move all of the counters or none of them; return an outcome for each, in the order given.

        One counter takes one atomic statement. Several take a transaction, which locks them in one
        order, whatever the order given. Either way it commits on its own.
        """
        if len(advances) < 2:
            return [self.advance(advance) for advance in advances]
        outcomes = self.retry(lambda connection: self.send_all(connection, advances))
        return [outcomes[advance.row] for advance in advances]

    def advance(self, advance: Advance) -> Outcome:
        """Move one counter by one atomic statement; one that is logged takes a transaction."""
        if not advance.fits(0) and not advance.count_denied:
            # No row has room, and a row that does not exist yet would not be asked.
            return self.look([advance])[advance.row]
        if advance.logged:
            return self.retry(lambda connection: self.send_all(connection, [advance]))[advance.row]
        return self.retry(lambda connection: self.send_advance(connection, advance))

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
        plain = [advance for advance in advances if not advance.logged]
        beside = [advance.weighed_row for advance in plain if advance.weighed_row]
        counts = self.read([*(advance.row for advance in plain), *beside])
        met = {
            advance.row: _met(
                advance, counts[advance.row], counts[advance.weighed_row] if advance.weighed_row else 0
            )
            for advance in plain
        }
        return met | {
            advance.row: self._look_into_log(advance, advance.logged)
            for advance in advances
            if advance.logged
        }

    def refund(self, advance: Advance) -> None:
        """Take the amount of an advance off its counter, down to 0."""
        row, amount, logged = advance.row, advance.amount, advance.logged
        if logged:
            self.transact(lambda cursor: logs.refund(cursor, advance, logged))
        else:
            self.execute(_REFUND, [amount, amount, row.key, row.window_start])

    def reset(self, key: str) -> None:
        """Delete all rows of a stored key."""

        def delete(cursor: CursorWrapper) -> None:
            cursor.execute(_RESET, [key])
            logs.forget(cursor, key)

        self.transact(delete)

    def count_expired(self, now: int) -> int:
        """Count the rows that pruning would delete at an instant."""
        return int(self.fetch_all(_COUNT_EXPIRED, [now, now], seconds=_PRUNE_SECONDS)[0][0])

    def has_expired(self, now: int) -> bool:
        """Tell whether there are rows that pruning would delete at an instant."""
        return bool(self.fetch_all(_HAS_EXPIRED, [now, now], seconds=_PRUNE_SECONDS)[0][0])

    def prune(self, now: int, batch_size: int) -> int:
        """Delete at most so many rows that have expired by an instant; return how many."""
        return self.retry(
            lambda connection: self.send_prune(connection, now, batch_size), seconds=_PRUNE_SECONDS
        )

    # What a vendor does in its own way ----------------------------------------------------------

    #: What a migration sends to create and to drop what the database can have besides the tables.
    create_statements: ClassVar[Sequence[str]] = ()
    drop_statements: ClassVar[Sequence[str]] = ()

    def missing(self) -> str:
        """Return what the database could have besides the tables, and has not; empty if nothing."""
        return ""

    def send_advance(self, connection: BaseDatabaseWrapper, advance: Advance) -> Outcome:
        """Move one counter by one statement, which is atomic by itself; bring the counts back.

        Called in and outside a transaction. A row that is not there is begun without being asked
        whether ``first`` fits: the caller has asked.
        """
        raise NotImplementedError

    def send_all(self, connection: BaseDatabaseWrapper, advances: Sequence[Advance]) -> dict[Row, Outcome]:
        """Move all of the counters or none of them, in a transaction; bring an outcome for each back."""
        outcomes: dict[Row, Outcome] = {}
        if len(advances) == 1 or all(advance.fits(0) for advance in advances):
            outcomes = in_transaction(connection, lambda: self._move_all(connection, advances))
        outcomes |= self.look([advance for advance in advances if advance.row not in outcomes])
        for advance in advances if len(advances) > 1 else ():
            if advance.count_denied and not outcomes[advance.row].fits:
                # It stays refused, even if there should be room by now.
                outcomes[advance.row] = dataclasses.replace(self.advance(advance), fits=False)
        return outcomes

    def send_prune(self, connection: BaseDatabaseWrapper, now: int, batch_size: int) -> int:
        """Delete a batch of expired rows, leaving alone what others have locked where that can be."""
        deleted = 0
        with connection.cursor() as cursor:
            for statement in self.prune_statements:
                cursor.execute(statement, [now, batch_size - deleted])
                deleted += cursor.rowcount
        return deleted

    def server_time(self) -> int:
        """Return the server's clock in microseconds since the epoch, where it has one."""
        raise NotImplementedError

    # What both build on -------------------------------------------------------------------------

    def meet(self, cursor: CursorWrapper, advance: Advance) -> Outcome:
        """Read the counts that a refused advance has met."""
        cursor.execute(_MEET, advance.params)
        count, weighed = cursor.fetchone() or (0, 0)
        return _met(advance, count, weighed if advance.weighed else 0)

    def _move_all(
        self, connection: BaseDatabaseWrapper, advances: Sequence[Advance]
    ) -> tuple[bool, dict[Row, Outcome]]:
        """Move the rows until one has no room; return whether to keep that, and the outcomes that it has.

        Of several, only the outcome that refuses counts; one alone may count what it refuses.
        """
        outcomes = {}
        for advance in sorted(advances, key=lambda advance: advance.row):
            outcome = outcomes[advance.row] = self.send_advance(connection, advance.head)
            if not outcome.fits:
                return False, {advance.row: outcome}
        # Logs are read when all is locked: a transaction may see all of them as they were at its first
        # look.
        for advance in advances:
            if advance.logged:
                with connection.cursor() as cursor:
                    total = outcomes[advance.row].count
                    moved, outcome = logs.append(cursor, advance, advance.logged, total=total)
                if not outcome.fits:
                    return moved and len(advances) == 1, {advance.row: outcome}
                outcomes[advance.row] = outcome
        return True, outcomes

    def _look_into_log(self, advance: Advance, logged: Logged) -> Outcome:
        def look(connection: BaseDatabaseWrapper) -> Outcome:
            with connection.cursor() as cursor:
                return logs.look(cursor, advance, logged)

        return self.retry(look)


def _met(advance: Advance, count: int, weighed: int) -> Outcome:
    return Outcome(advance.fits(count, weighed), count, weighed)
