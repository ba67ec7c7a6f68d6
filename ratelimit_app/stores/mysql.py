"""Counters in MariaDB (10.6 or newer) and MySQL (8.0 or newer)."""

from typing import Any

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ratelimit_app.stores.base import Store
from ratelimit_app.stores.committing import in_transaction
from ratelimit_app.stores.rows import Advance, Outcome

#: Above the 63 bits of any count: marks a row that stayed as it was.
_REFUSED = 1 << 63

#: The bits that a count beside another one has at least, of the 63 that bring both back.
_COUNT_BITS = 32

# ``LAST_INSERT_ID(x)`` is x, and sends it along with the answer: MySQL has no RETURNING. Assignments are
# made in the order written, each seeing those before it: ``count`` comes last. The inner IF changes
# nothing either way: it is there to send the count that was met, marked as refused.
_ADVANCE = """
INSERT INTO ratelimit_app_counter (`key`, window_start, count, expires_at)
VALUES (%(key)s, %(window_start)s, LAST_INSERT_ID(%(first)s), %(expires_at)s)
ON DUPLICATE KEY UPDATE
expires_at = IF(
    GREATEST(count, %(floor)s) + %(amount)s <= %(highest)s,
    GREATEST(expires_at, %(expires_at)s),
    expires_at
),
count = IF(
    GREATEST(count, %(floor)s) + %(amount)s <= %(highest)s,
    LAST_INSERT_ID(GREATEST(count, %(floor)s) + %(amount)s),
    IF(LAST_INSERT_ID(count | %(refused)s) = 0, count, count)
)
"""
# The same beside a weighed row. There is one number to send both counts in: each takes a part of it, or
# fills it where it is too large for that.
_ADVANCE_WEIGHED = """
INSERT INTO ratelimit_app_counter (`key`, window_start, count, expires_at)
SELECT %(key)s, %(window_start)s,
    %(first)s + 0 * LAST_INSERT_ID(LEAST(%(first)s, %(count_mask)s) << %(half)s | LEAST(beside, %(mask)s)),
    %(expires_at)s
FROM (
    SELECT COALESCE(MAX(count), 0) AS beside,
        COALESCE(MAX((CAST(count AS DECIMAL(65)) * %(weight)s + %(scale)s - 1) DIV %(scale)s), 0) AS part
    FROM ratelimit_app_counter WHERE `key` = %(key)s AND window_start = %(weighed_start)s
) AS weighed
WHERE %(first)s + part <= %(highest)s
ON DUPLICATE KEY UPDATE
expires_at = IF(
    GREATEST(count, %(floor)s) + %(amount)s + part <= %(highest)s,
    GREATEST(expires_at, %(expires_at)s),
    expires_at
),
count = IF(
    GREATEST(count, %(floor)s) + %(amount)s + part <= %(highest)s,
    GREATEST(count, %(floor)s) + %(amount)s + 0 * LAST_INSERT_ID(
        LEAST(GREATEST(count, %(floor)s) + %(amount)s, %(count_mask)s) << %(half)s | LEAST(beside, %(mask)s)
    ),
    count + 0 * LAST_INSERT_ID(
        %(refused)s | LEAST(count, %(count_mask)s) << %(half)s | LEAST(beside, %(mask)s)
    )
)
"""
_LOCK_EXPIRED = """
SELECT `key`, window_start FROM ratelimit_app_counter
WHERE expires_at <= %s ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
_DELETE = "DELETE FROM ratelimit_app_counter WHERE `key` = %s AND window_start = %s"
_LOCK_EXPIRED_CALLS = """
SELECT `key`, sequence FROM ratelimit_app_loggedcall
WHERE expires_at <= %s ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
"""
_DELETE_CALL = "DELETE FROM ratelimit_app_loggedcall WHERE `key` = %s AND sequence = %s"
_SERVER_TIME = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

#: ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK, ER_CHECKREAD; ER_QUERY_INTERRUPTED and MariaDB's
#: ER_STATEMENT_TIMEOUT: a statement of this kind runs into a ``max_statement_time`` when it waits for a lock.
_CONTENTION = {1205, 1213, 1020, 1317, 1969}


class VendorStore(Store):
    stop_statement = "KILL %s"
    batch = 200  # row by row: a thousand would be locked for a tenth of a second

    def send_advance(self, connection: BaseDatabaseWrapper, advance: Advance) -> Outcome:
        with connection.cursor() as cursor:
            if advance.weighed:
                return self._send_weighed(cursor, advance)
            cursor.execute(_ADVANCE, {**advance.params, "refused": _REFUSED})
            answer = cursor.lastrowid or _REFUSED
            return Outcome(answer <= advance.ceiling, answer & ~_REFUSED)

    def _send_weighed(self, cursor: CursorWrapper, advance: Advance) -> Outcome:
        # One bit more than the ceiling has: what fills it does not fit.
        half = 63 - max(_COUNT_BITS, advance.ceiling.bit_length() + 1)
        mask, count_mask = (1 << half) - 1, (1 << 63 - half) - 1
        masks = {"half": half, "mask": mask, "count_mask": count_mask, "refused": _REFUSED}
        while True:
            cursor.execute(_ADVANCE_WEIGHED, {**advance.params, **masks})
            if cursor.rowcount:
                break
            met = self.meet(cursor, advance)  # there is no row, and none was begun
            if not met.fits:
                return met
            # Another process has made room between the two: ask anew.
        is_refused, both = divmod(cursor.lastrowid, _REFUSED)
        count, weighed = divmod(both, 1 << half)
        if count == count_mask or weighed == mask:  # it may be larger than that
            met = self.meet(cursor, advance)
            count, weighed = (met.count if count == count_mask else count), met.weighed
        return Outcome(not is_refused and advance.holds(count, weighed), count, weighed)

    def send_prune(self, connection: BaseDatabaseWrapper, now: int, batch_size: int) -> int:
        # DELETE knows no SKIP LOCKED, and would meet the rows of live requests in another order.
        def delete() -> tuple[bool, int]:
            deleted = 0
            with connection.cursor() as cursor:
                for lock, remove in ((_LOCK_EXPIRED_CALLS, _DELETE_CALL), (_LOCK_EXPIRED, _DELETE)):
                    cursor.execute(lock, [now, batch_size - deleted])
                    expired = cursor.fetchall()
                    cursor.executemany(remove, expired)
                    deleted += len(expired)
            return True, deleted

        return in_transaction(connection, delete)

    def server_time(self) -> int:
        return int(self.fetch_all(_SERVER_TIME)[0][0])

    def session(self, driver_connection: Any) -> int:
        return int(driver_connection.thread_id())

    def is_contention(self, error: DatabaseError) -> bool:
        return bool(error.args) and error.args[0] in _CONTENTION
