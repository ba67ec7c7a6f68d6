"""How a store sends its statements: on a connection that commits them, again where a lock was in the way."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.db import DatabaseError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ratelimit_app import clock
from ratelimit_app.conf import conf
from ratelimit_app.stores.committing import committing_connection, in_transaction

T = TypeVar("T")

#: Seconds of the first pause before a statement that met a lock is sent again; it doubles.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05


class Sender:
    """What sends statements to one database alias."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def connection(self) -> BaseDatabaseWrapper:
        """Return the connection to send statements on."""
        return committing_connection(self.alias)

    def is_contention(self, error: DatabaseError) -> bool:
        """Tell whether a statement failed only because another one was in its way."""
        raise NotImplementedError

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

    def transact(self, work: Callable[[CursorWrapper], T]) -> T:
        """Send the statements of ``work`` as a transaction of their own; return what it returns."""
        connection = self.connection()

        def send() -> tuple[bool, T]:
            with connection.cursor() as cursor:
                return True, work(cursor)

        return self.retry(lambda: in_transaction(connection, send))

    def retry(self, send: Callable[[], T]) -> T:
        """Send again what met a lock or a deadlock, for at most ``RATELIMIT_TIMEOUT`` seconds.

        Once in any case, unless that is 0: PostgreSQL takes a second to find a deadlock.
        """
        deadline = clock.monotonic() + conf.timeout
        pause, is_last = _FIRST_PAUSE, not conf.timeout
        while True:
            try:
                return send()
            except DatabaseError as error:
                if is_last or not self.is_contention(error):
                    raise
            is_last = clock.monotonic() >= deadline
            # Before the last try, whoever was in the way gets the time to go on.
            time.sleep(_LONGEST_PAUSE if is_last else random.uniform(0, pause))  # noqa: S311 (guards nothing)
            pause = min(2 * pause, _LONGEST_PAUSE)
