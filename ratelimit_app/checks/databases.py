"""System checks of what the migrations make in the counters' database."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import Error, connections

from ratelimit_app.conf import conf
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.stores import store_for


@checks.register(checks.Tags.database)
def check_tables(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report tables of the counters that no migration has made yet.

    No error, because ``migrate`` runs the checks first: an error would keep it from mending this.
    """
    missing = _missing_tables(conf.database) if conf.database in (databases or ()) else []
    if not missing:
        return []
    return [
        checks.Warning(
            f"The counters' database, alias {conf.database!r}, has no {' and no '.join(missing)} yet: "
            "nothing can be counted there.",
            hint=f"'manage.py migrate --database {conf.database}' makes the tables.",
            id="ratelimit_app.W012",
        )
    ]


@checks.register(checks.Tags.database)
def check_functions(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report what the counters' database could have besides the tables, and has not."""
    missing = conf.database in (databases or ()) and _missing_functions(conf.database)
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


def _missing_tables(alias: str) -> list[str]:
    try:
        found = set(connections[alias].introspection.table_names())
    except Error:  # a database that does not answer is for others to report
        return []
    return [model._meta.db_table for model in (Counter, LoggedCall) if model._meta.db_table not in found]


def _missing_functions(alias: str) -> str:
    try:
        return store_for(alias).missing()
    except Error:
        return ""
