"""System checks of a SQLite database that several connections are to count in."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from ratelimit_app.conf import conf
from ratelimit_app.stores import database_of

#: How Django names the databases in memory that it makes for tests.
_OF_A_TEST = "file:memorydb_"

_HINT = 'OPTIONS = {"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"} on that alias.'


@checks.register()
def check_file(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report counters that share a SQLite file with what the views write."""
    if _sqlite() is None or not _is_shared():
        return []
    return [
        checks.Warning(
            "The counters are in the same SQLite file as everything else: a view's transaction that "
            "has written takes the count along, and back when it fails.",
            hint="Give RATELIMIT_DATABASE an alias with a file of its own, and add "
            "'ratelimit_app.routers.CounterRouter' to DATABASE_ROUTERS.",
            id="ratelimit_app.W001",
        )
    ]


@checks.register()
def check_memory(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report counters in memory, where no other thread or process sees them."""
    connection = _sqlite()
    if connection is None or not _is_in_memory(connection):
        return []
    if str(connection.settings_dict["NAME"]).startswith(_OF_A_TEST):
        return []
    return [
        checks.Warning(
            f"The counters' alias {conf.database!r} is a SQLite database in memory: each worker, and each "
            "of its threads, counts for itself, and begins with no tables.",
            hint="Give it a file.",
            id="ratelimit_app.W009",
        )
    ]


@checks.register()
def check_init_command(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report an alias that does not ask for a write-ahead log when it opens its file."""
    connection = _file()
    if connection is None:
        return []
    asked = str(connection.settings_dict["OPTIONS"].get("init_command", ""))
    return [] if "wal" in asked.lower() else [_nothing_asked()]


@checks.register(checks.Tags.database)
def check_journal(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report a file that has no write-ahead log."""
    connection = _file()
    if connection is None or conf.database not in (databases or ()):
        return []
    return [] if _journal(connection) in {"wal", ""} else [_without_wal()]


def _without_wal() -> checks.CheckMessage:
    return checks.Warning(
        f"The SQLite file of the counters' alias {conf.database!r} has no write-ahead log: several processes "
        "count many times slower, and readers keep writers out.",
        hint=_HINT,
        id="ratelimit_app.W008",
    )


def _nothing_asked() -> checks.CheckMessage:
    return checks.Info(
        f"The counters' alias {conf.database!r} does not ask SQLite for a write-ahead log "
        f"('manage.py check --database {conf.database}' looks whether the file has one all the same).",
        hint=_HINT,
        id="ratelimit_app.I001",
    )


def _sqlite() -> BaseDatabaseWrapper | None:
    """Return the connection of the counters if it is one to SQLite."""
    if conf.database not in connections or connections[conf.database].vendor != "sqlite":
        return None
    return connections[conf.database]


def _file() -> BaseDatabaseWrapper | None:
    """Return the connection of the counters if it is one to a file of their own: W001 asks for that first."""
    connection = _sqlite()
    if connection is None or _is_in_memory(connection) or _is_shared():
        return None
    return connection


def _is_in_memory(connection: BaseDatabaseWrapper) -> bool:
    name = str(connection.settings_dict["NAME"])
    return ":memory:" in name or "mode=memory" in name


def _is_shared() -> bool:
    return database_of(conf.database) == database_of(DEFAULT_DB_ALIAS)


def _journal(connection: BaseDatabaseWrapper) -> str:
    """Return the kind of journal that the file has, in small letters; empty if it cannot be read."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            return str(cursor.fetchone()[0]).lower()
    except Error:
        return ""
