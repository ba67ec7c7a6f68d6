"""System checks of the database that the counters are in."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, Error, connections

from ratelimit_app.conf import conf
from ratelimit_app.stores import database_of, store_for


@checks.register()
def check_sqlite_file(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report counters that share a SQLite file with what the views write."""
    if conf.database not in connections or connections[conf.database].vendor != "sqlite":
        return []
    if conf.database != DEFAULT_DB_ALIAS and database_of(conf.database) != database_of(DEFAULT_DB_ALIAS):
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


@checks.register(checks.Tags.database)
def check_functions(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report what the counters' database could have besides the tables, and has not."""
    missing = conf.database in (databases or ()) and _missing(conf.database)
    if not missing:
        return []
    return [
        checks.Warning(
            f"The counters' database has not {missing}: several limits at once, and sliding logs, take a "
            "transaction instead of one round trip.",
            hint="Send what 'manage.py sqlmigrate ratelimit_app 0003' prints as a role that may create "
            "functions, and restart.",
            id="ratelimit_app.W003",
        )
    ]


def _missing(alias: str) -> str:
    try:
        return store_for(alias).missing()
    except Error:  # a database that does not answer is for others to report
        return ""
