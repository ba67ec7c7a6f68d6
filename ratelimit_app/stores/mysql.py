"""Counters in MariaDB (10.6 or newer) and MySQL (8.0 or newer)."""

import dataclasses

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ratelimit_app.stores.base import Store
from ratelimit_app.stores.committing import in_transaction
from ratelimit_app.stores.rows import Advance, Outcome

#: Above the 63 bits of any count: marks a row that stayed as it was.
_REFUSED = 1 << 63

#: Marks two counts that are not both within the bits of a half; the lowest bit then says whether they fitted.
_LARGE = 1 << 62
_HALF = 31
_MARKS = {"refused": _REFUSED, "large": _LARGE, "half": _HALF}

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
# The same beside a weighed row. There is one number to send both counts in: each takes half of it. Where
# either is too large for that, or nothing was moved, the counts are read afterwards.
_ADVANCE_WEIGHED = """
INSERT INTO ratelimit_app_counter (`key`, window_start, count, expires_at)
SELECT %(key)s, %(window_start)s,
    IF(
        LAST_INSERT_ID(IF(
            GREATEST(%(first)s, weighed.beside) >> %(half)s,
            %(large)s + (%(first)s + weighed.part <= %(ceiling)s),
            %(first)s << %(half)s | weighed.beside
        )) = 0,
        %(first)s,
        %(first)s
    ),
    %(expires_at)s
FROM (
    SELECT COALESCE(MAX(count), 0) AS beside,
        COALESCE(MAX((CAST(count AS DECIMAL(65)) * %(weight)s + %(scale)s - 1) DIV %(scale)s), 0) AS part
    FROM ratelimit_app_counter WHERE `key` = %(key)s AND window_start = %(weighed_start)s
) AS weighed
WHERE %(first)s + weighed.part <= %(highest)s
ON DUPLICATE KEY UPDATE
expires_at = IF(
    GREATEST(count, %(floor)s) + %(amount)s + weighed.part <= %(highest)s,
    GREATEST(ratelimit_app_counter.expires_at, %(expires_at)s),
    ratelimit_app_counter.expires_at
),
count = IF(
    GREATEST(count, %(floor)s) + %(amount)s + weighed.part <= %(highest)s,
    IF(
        LAST_INSERT_ID(IF(
            GREATEST(GREATEST(count, %(floor)s) + %(amount)s, weighed.beside) >> %(half)s,
            %(large)s + (GREATEST(count, %(floor)s) + %(amount)s + weighed.part <= %(ceiling)s),
            GREATEST(count, %(floor)s) + %(amount)s << %(half)s | weighed.beside
        )) = 0,
        count,
        GREATEST(count, %(floor)s) + %(amount)s
    ),
    IF(LAST_INSERT_ID(%(refused)s) = 0, count, count)
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

#: ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK, ER_CHECKREAD
_CONTENTION = {1205, 1213, 1020}


class VendorStore(Store):
    def send_advance(self, connection: BaseDatabaseWrapper, advance: Advance) -> Outcome:
        with connection.cursor() as cursor:
            while True:
                sql = _ADVANCE_WEIGHED if advance.weighed else _ADVANCE
                cursor.execute(sql, {**advance.params, "ceiling": advance.ceiling, **_MARKS})
                answer = cursor.lastrowid or _REFUSED
                if not advance.weighed:
                    return Outcome(answer <= advance.ceiling, answer & ~_REFUSED)
                if not answer & _REFUSED:
                    return self._moved(cursor, advance, answer)
                met = self.meet(cursor, advance)
                if not met.fits:
                    return met
                # Another process has made room between the two: ask anew.

    def _moved(self, cursor: CursorWrapper, advance: Advance, answer: int) -> Outcome:
        if answer & _LARGE:
            return dataclasses.replace(self.meet(cursor, advance), fits=bool(answer & 1))
        count, weighed = divmod(answer, 1 << _HALF)
        return Outcome(advance.holds(count, weighed), count, weighed)

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

    def is_contention(self, error: DatabaseError) -> bool:
        return bool(error.args) and error.args[0] in _CONTENTION
