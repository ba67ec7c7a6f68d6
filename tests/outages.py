"""Databases that do not answer: a table or a server is really taken away."""

import contextlib
from collections.abc import Iterator

from django.db import connections

from ratelimit_app import outages

NOWHERE = {"PORT": "1", "NAME": "/nowhere/at/all"}


@contextlib.contextmanager
def outage(kind: str) -> Iterator[None]:
    """Take the counters away: their table, or the server (on SQLite: the file) that has it.

    At the end they are asked again at once, as they would be after a second.
    """
    away = without_server("ratelimit")
    if kind == "table":
        away = without_table("ratelimit", "ratelimit_app_counter")
    with away:
        yield
    outages.forget()


@contextlib.contextmanager
def without_table(alias: str, table: str) -> Iterator[None]:
    _rename(alias, table, "taken_away")
    try:
        yield
    finally:
        _rename(alias, "taken_away", table)


@contextlib.contextmanager
def without_server(alias: str) -> Iterator[None]:
    connection = connections[alias]
    kept = dict(connection.settings_dict)
    connection.close()
    connection.settings_dict.update(NOWHERE)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(kept)


def _rename(alias: str, table: str, name: str) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {name}")
