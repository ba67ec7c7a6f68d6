"""Counters in PostgreSQL."""

import json
from collections.abc import Sequence
from typing import Any

from django.db import DatabaseError, ProgrammingError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ratelimit_app.stores import postgresql_functions as functions
from ratelimit_app.stores.base import Store
from ratelimit_app.stores.rows import Advance, Outcome, Row

# The second SELECT brings the count of a row that stayed as it was, in the same round trip.
_ADVANCE = """
WITH moved AS (
    INSERT INTO ratelimit_app_counter AS c (key, window_start, count, expires_at)
    VALUES (%(key)s, %(window_start)s, %(first)s, %(expires_at)s)
    ON CONFLICT (key, window_start) DO UPDATE
    SET count = greatest(c.count, %(floor)s) + %(amount)s,
        expires_at = greatest(c.expires_at, excluded.expires_at)
    WHERE greatest(c.count, %(floor)s) + %(amount)s <= %(highest)s
    RETURNING c.count
)
SELECT true, count, 0 FROM moved
UNION ALL
SELECT false, count, 0 FROM ratelimit_app_counter
WHERE key = %(key)s AND window_start = %(window_start)s AND NOT EXISTS (SELECT FROM moved)
"""
# The same beside a weighed row.
_ADVANCE_WEIGHED = """
WITH weighed AS (
    SELECT coalesce(max(count), 0) AS count,
        coalesce(max(div(count::numeric * %(weight)s + %(scale)s - 1, %(scale)s)::bigint), 0) AS part
    FROM ratelimit_app_counter WHERE key = %(key)s AND window_start = %(weighed_start)s
), moved AS (
    INSERT INTO ratelimit_app_counter AS c (key, window_start, count, expires_at)
    SELECT %(key)s, %(window_start)s, %(first)s, %(expires_at)s
    FROM weighed WHERE %(first)s + part <= %(highest)s
    ON CONFLICT (key, window_start) DO UPDATE
    SET count = greatest(c.count, %(floor)s) + %(amount)s,
        expires_at = greatest(c.expires_at, excluded.expires_at)
    WHERE greatest(c.count, %(floor)s) + %(amount)s + (SELECT part FROM weighed) <= %(highest)s
    RETURNING c.count
)
SELECT true, moved.count, weighed.count FROM moved, weighed
UNION ALL
SELECT false, coalesce((
    SELECT count FROM ratelimit_app_counter WHERE key = %(key)s AND window_start = %(window_start)s
), 0), count
FROM weighed WHERE NOT EXISTS (SELECT FROM moved)
"""
_PRUNE = """
DELETE FROM ratelimit_app_counter WHERE (key, window_start) IN (
    SELECT key, window_start FROM ratelimit_app_counter
    WHERE expires_at <= %s ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
)
"""
_PRUNE_LOG = """
DELETE FROM ratelimit_app_loggedcall WHERE (key, sequence) IN (
    SELECT key, sequence FROM ratelimit_app_loggedcall
    WHERE expires_at <= %s ORDER BY expires_at LIMIT %s FOR UPDATE SKIP LOCKED
)
"""
_CALL = "SELECT ratelimit_app_advance(%s)"
_MAY_CALL = "SELECT coalesce(has_function_privilege(to_regprocedure(%s), 'execute'), false)"
_SERVER_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

#: serialization_failure, deadlock_detected, lock_not_available, and query_canceled: a statement of this
#: kind runs into a ``statement_timeout`` when it waits for a lock.
_CONTENTION = {"40001", "40P01", "55P03", "57014"}

#: undefined_function, insufficient_privilege
_NOT_CALLABLE = {"42883", "42501"}

#: Whether there are the functions, by the alias and the name of a database.
_with_functions: dict[tuple[str, str], bool] = {}


class VendorStore(Store):
    stop_statement = "SELECT pg_terminate_backend(%s)"
    prune_statements = (_PRUNE_LOG, _PRUNE)
    create_statements = functions.CREATE
    drop_statements = functions.DROP

    def missing(self) -> str:
        return "" if self._ask_for_functions() else f"the function {functions.SIGNATURE}"

    def send_all(self, connection: BaseDatabaseWrapper, advances: Sequence[Advance]) -> dict[Row, Outcome]:
        if not self._has_functions():
            return super().send_all(connection, advances)
        try:
            return _call(connection, sorted(advances, key=lambda advance: advance.row))
        except ProgrammingError as error:
            if _state(error) not in _NOT_CALLABLE:
                raise
            _with_functions[self._database] = False
        return super().send_all(connection, advances)

    def send_advance(self, connection: BaseDatabaseWrapper, advance: Advance) -> Outcome:
        if advance.weighed and self._has_functions():
            return _call(connection, [advance])[advance.row]  # planned once for a connection
        with connection.cursor() as cursor:
            while True:
                cursor.execute(_ADVANCE_WEIGHED if advance.weighed else _ADVANCE, advance.params)
                moved, count, weighed = cursor.fetchone() or (False, 0, 0)
                if moved:
                    return Outcome(advance.holds(count, weighed), count, weighed)
                if not advance.fits(count, weighed):
                    return Outcome(False, count, weighed)
                # The refusal saw a row that was changed after the statement had begun, and its
                # count is from before that, when there was room: ask anew.

    def server_time(self) -> int:
        return int(self.fetch_all(_SERVER_TIME)[0][0])

    def session(self, driver_connection: Any) -> int:
        return int(driver_connection.info.backend_pid)

    def is_contention(self, error: DatabaseError) -> bool:
        return _state(error) in _CONTENTION

    @property
    def _database(self) -> tuple[str, str]:
        return self.alias, str(connections[self.alias].settings_dict["NAME"])

    def _has_functions(self) -> bool:
        """Tell whether there are the functions, as of the first time that this process has asked."""
        if self._database not in _with_functions:
            _with_functions[self._database] = self._ask_for_functions()
        return _with_functions[self._database]

    def _ask_for_functions(self) -> bool:
        return bool(self.fetch_all(_MAY_CALL, [functions.SIGNATURE])[0][0])


def _call(connection: BaseDatabaseWrapper, advances: Sequence[Advance]) -> dict[Row, Outcome]:
    with connection.cursor() as cursor:
        cursor.execute(_CALL, [json.dumps([advance.step for advance in advances])])
        (answer,) = cursor.fetchone()
    parts = [answer[start : start + functions.WIDTH] for start in range(0, len(answer), functions.WIDTH)]
    outcomes = [Outcome(bool(fits), *figures) for fits, *figures in parts]
    return dict(zip([advance.row for advance in advances], outcomes, strict=True))


def _state(error: DatabaseError) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)
