"""The system check of whether the counters' database has its tables."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import Error, connections

from ratelimit_app.conf import conf
from ratelimit_app.models import Counter, LoggedCall


@checks.register(checks.Tags.database)
def check_tables(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report tables of the counters that no migration has made yet.

    No error, because ``migrate`` runs the checks first: an error would keep it from mending this.
    """
    missing = _missing(conf.database) if conf.database in (databases or ()) else []
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


def _missing(alias: str) -> list[str]:
    try:
        found = set(connections[alias].introspection.table_names())
    except Error:  # a database that does not answer is for others to report
        return []
    return [model._meta.db_table for model in (Counter, LoggedCall) if model._meta.db_table not in found]
