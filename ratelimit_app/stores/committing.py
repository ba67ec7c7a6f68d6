"""The connection that counts: one on which the counting commits by itself."""

import select
import weakref
from collections.abc import Callable
from typing import TypeVar

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

T = TypeVar("T")

#: For each thread's connection the second one, made when the first was inside a transaction.
_second: "weakref.WeakKeyDictionary[BaseDatabaseWrapper, BaseDatabaseWrapper]" = weakref.WeakKeyDictionary()


def committing_connection(alias: str) -> BaseDatabaseWrapper:
    """Return a connection to a database on which every statement commits on its own.

    It is the alias's own, unless the caller is inside ``atomic()``: then it is a second one of this
    thread, so that what the caller does later un-counts nothing and locks no counter. Inside a
    ``TestCase`` the counters stay with the test, which rolls them back.
    """
    connection = connections[alias]
    if is_private(connection):
        return connection
    if not _commits_by_itself(connection):
        if connection not in _second:
            _second[connection] = _open_second(connection)
        connection = _second[connection]
    return connection


def is_private(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether no other connection sees what is written on this one: in a ``TestCase``, or in memory."""
    return _in_test_case(connection) or _is_in_memory(connection)


def in_transaction(connection: BaseDatabaseWrapper, work: Callable[[], tuple[bool, T]]) -> T:
    """Run ``work`` in a transaction of its own; keep what it did if the first of its results is true.

    Returns the second. ``atomic()`` would do, but it knows only connections that have an alias.
    """
    if not connection.get_autocommit():
        return _in_savepoint(connection, work)
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        kept, result = work()
        if kept:
            connection.commit()
        else:
            connection.rollback()
        return result
    except BaseException:
        _abandon(connection)
        raise
    finally:
        if connection.connection is not None:
            connection.set_autocommit(True)


def _in_savepoint(connection: BaseDatabaseWrapper, work: Callable[[], tuple[bool, T]]) -> T:
    savepoint = connection.savepoint() or ""
    kept = False
    try:
        kept, result = work()
        return result
    finally:
        end = connection.savepoint_commit if kept else connection.savepoint_rollback
        end(savepoint)


def _abandon(connection: BaseDatabaseWrapper) -> None:
    try:
        connection.rollback()
    except Error:
        connection.close()


def close_if_broken(connection: BaseDatabaseWrapper) -> None:
    """Have a connection that the server has ended opened anew, as Django does only between requests.

    Inside ``atomic()`` it is the caller's, and left alone.
    """
    if connection.connection is None or connection.in_atomic_block:
        return
    if connection.errors_occurred or _has_news(connection):
        if connection.is_usable():
            connection.errors_occurred = False
        else:
            connection.close()


def _commits_by_itself(connection: BaseDatabaseWrapper) -> bool:
    # ``get_autocommit`` would connect, for as long as that may take.
    if connection.connection is None:
        return bool(connection.settings_dict["AUTOCOMMIT"]) and not connection.in_atomic_block
    return connection.get_autocommit()


def _has_news(connection: BaseDatabaseWrapper) -> bool:
    """Tell whether the server has said something unasked: hardly ever anything but that it has ended."""
    waiting = select.poll()
    try:
        waiting.register(connection.connection.fileno(), select.POLLIN)
    except connection.Database.Error:  # type: ignore[attr-defined]
        return True  # closed on this side
    return bool(waiting.poll(0))


def _in_test_case(connection: BaseDatabaseWrapper) -> bool:
    return any(getattr(block, "_from_testcase", False) for block in connection.atomic_blocks)


def _is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    """Tell of a SQLite database that only its own connection sees."""
    return bool(getattr(connection, "is_in_memory_db", bool)())


def separate(connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """Return another connection to the same database, for any thread, which is not open yet."""
    other = connection.copy()
    # It is there to commit by itself, and not to wait for a pool whose connections wait for it.
    other.settings_dict["AUTOCOMMIT"] = True
    other.settings_dict["OPTIONS"].pop("pool", None)
    other.inc_thread_sharing()
    return other


def _open_second(connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    second = separate(connection)
    # The two live and end together. Django tells nobody that it closes a connection, so it is told
    # by the connection itself; one that ends with its thread, unclosed, is collected by any thread.
    first = weakref.ref(connection)

    def close_both() -> None:
        second.close()
        if (living := first()) is not None:
            type(living).close(living)

    connection.close = close_both  # type: ignore[method-assign]
    # Collected in an event loop, the second must not ask whether it may be closed there: ``close`` does.
    weakref.finalize(connection, second._close)  # type: ignore[attr-defined]
    return second
