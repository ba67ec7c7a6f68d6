"""How a store sends its statements: on a connection that commits them, in time, again if they met a lock."""

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from django.db import DatabaseError, Error, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from ratelimit_app import clock, deadlines
from ratelimit_app.conf import conf
from ratelimit_app.stores.committing import (
    close_if_broken,
    committing_connection,
    in_transaction,
    is_private,
    separate,
)

T = TypeVar("T")

#: Seconds of the first pause before a statement that met a lock is sent again; it doubles.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 0.05

#: Seconds in which a server has to show that it answers, when a statement has taken too long.
_PROOF = 0.5


class TimeOver(OperationalError):  # noqa: N818 (it says what happened)
    """A statement was given up; ``is_busy`` says that the server answers: something was in its way."""

    def __init__(self, message: str, *, is_busy: bool) -> None:
        super().__init__(message)
        self.is_busy = is_busy


class Sender:
    """What sends statements to one database alias."""

    #: The statement that ends what a session still does; its parameter is the session's number.
    stop_statement: ClassVar[str]

    def __init__(self, alias: str) -> None:
        self.alias = alias

    def connection(self) -> BaseDatabaseWrapper:
        """Return the connection to send statements on."""
        return committing_connection(self.alias)

    def session(self, driver_connection: Any) -> int:
        """Return the number of a driver's connection at the server."""
        raise NotImplementedError

    def is_private(self) -> bool:
        """Tell whether another thread would not see the counters of this one: in a test, or in memory."""
        return is_private(connections[self.alias])

    def is_contention(self, error: DatabaseError) -> bool:
        """Tell whether a statement failed only because another one was in its way."""
        raise NotImplementedError

    def is_busy(self, error: Error) -> bool:
        """Tell whether the database answers, and a lock has kept it from what it was asked."""
        if isinstance(error, TimeOver):
            return error.is_busy
        return isinstance(error, DatabaseError) and self.is_contention(error)

    def execute(self, sql: str, params: Sequence[str | int]) -> int:
        """Send a statement, never twice; return how many rows it changed."""

        def send(connection: BaseDatabaseWrapper) -> int:
            with connection.cursor() as cursor:
                cursor.execute(sql, params)
                return int(cursor.rowcount)

        return self.retry(send, is_repeatable=False)

    def fetch_all(
        self, sql: str, params: Sequence[str | int] = (), *, seconds: float | None = None
    ) -> list[tuple[Any, ...]]:
        """Send a query; return its rows."""

        def send(connection: BaseDatabaseWrapper) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                cursor.execute(sql, params)
                return list(cursor.fetchall())

        return self.retry(send, seconds=seconds)

    def transact(self, work: Callable[[CursorWrapper], T]) -> T:
        """Send the statements of ``work``, never twice, as a transaction; return what it returns."""

        def send(connection: BaseDatabaseWrapper) -> T:
            with connection.cursor() as cursor:
                return in_transaction(connection, lambda: (True, work(cursor)))

        return self.retry(send, is_repeatable=False)

    def retry(
        self,
        send: Callable[[BaseDatabaseWrapper], T],
        *,
        seconds: float | None = None,
        is_repeatable: bool = True,
    ) -> T:
        """Send what may take so many seconds (``RATELIMIT_TIMEOUT``); again, where it met a lock.

        Once more, too, on another connection, where the server has ended the one that was open. It may
        have heard it before that: what must not happen twice is not repeatable. Raises the database's
        error, and ``TimeOver`` where there was none in time.
        """
        until, pause = clock.monotonic() + (seconds or conf.timeout), _FIRST_PAUSE
        while True:
            connection = self.connection()
            opened = connection.connection
            try:
                return self.send_until(until, connection, send)
            except TimeOver:
                raise
            except Error as error:
                if self.is_busy(error):
                    if clock.monotonic() + pause >= until:
                        raise
                elif is_repeatable and self._had_ended(connection, opened, error, until):
                    is_repeatable = False
                else:
                    raise
            time.sleep(random.uniform(0, pause))  # noqa: S311 (guards nothing)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _had_ended(self, connection: BaseDatabaseWrapper, opened: object, error: Error, until: float) -> bool:
        """Tell whether an error came of a connection that the server has ended; it is opened anew then."""
        if opened is None or not isinstance(error, OperationalError | InterfaceError):
            return False
        self.send_until(until, connection, lambda _: None)
        return connection.connection is not opened

    def send_until(
        self, until: float, connection: BaseDatabaseWrapper, send: Callable[[BaseDatabaseWrapper], T]
    ) -> T:
        """Call ``send`` with a connection, and end its wait where that is not over by an instant."""
        # Looked up before: MySQL's driver tells no other thread while this one waits.
        session, descriptor = self._line(connection)
        try:
            with deadlines.Deadline(until, lambda: deadlines.cut(descriptor)) as deadline:
                close_if_broken(connection)
            if connection.connection is None:
                self._open(connection, until)
                session, descriptor = self._line(connection)
            with deadline:
                return send(connection)
        except Error as error:
            if not deadline.is_over:
                raise
            is_busy = bool(session) and self._stops(session)
            raise TimeOver("no answer in time", is_busy=is_busy) from error
        finally:
            if deadline.is_over:
                connection.close()

    def _line(self, connection: BaseDatabaseWrapper) -> tuple[int, int]:
        """Return the session and the socket of a connection: zero and none where it is not open."""
        if connection.connection is not None:
            with contextlib.suppress(Error), connection.wrap_database_errors:
                return self.session(connection.connection), connection.connection.fileno()
        return 0, -1

    def _open(self, connection: BaseDatabaseWrapper, until: float) -> None:
        """Connect as Django does, but wait no longer than until an instant."""
        connect = connection.get_new_connection
        what_follows = contextlib.ExitStack()

        def connect_in_time(params: Any) -> Any:
            left = until - clock.monotonic()
            made = deadlines.within(left, lambda: connect(params), lambda late: late.close())
            descriptor = made.fileno()  # Django asks for more, which a proxy in front may not answer
            what_follows.enter_context(deadlines.Deadline(until, lambda: deadlines.cut(descriptor)))
            return made

        connection.get_new_connection = connect_in_time  # type: ignore[method-assign,assignment]
        try:
            with what_follows:
                connection.ensure_connection()
        except TimeoutError as error:
            raise TimeOver("no connection in time", is_busy=False) from error
        finally:
            del connection.get_new_connection

    def _stops(self, session: int) -> bool:
        """Stop what a session still does, on a new connection; return whether the server answers."""
        connection = separate(connections[self.alias])

        def stop() -> None:
            try:
                with connection.cursor() as cursor:
                    cursor.execute(self.stop_statement, [session])
            finally:
                connection.close()

        try:
            deadlines.within(_PROOF, stop, lambda _: None)
        except (Error, TimeoutError):
            return False
        return True
