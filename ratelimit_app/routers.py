"""Where the tables live, for projects that keep the counters on an alias of their own."""

from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, models

from ratelimit_app.conf import conf
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.stores import database_of

_COUNTERS = (Counter, LoggedCall)
_APP_LABEL = Counter._meta.app_label


class CounterRouter:
    """Keep the counters on ``RATELIMIT_DATABASE``, and everything else away from it.

    Where that alias and another one are two connections to one database, nothing is kept away: one
    database has one record of what was migrated. The other databases have the tables too, unused.
    """

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str | None:
        return conf.database if model in _COUNTERS else None

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str | None:
        return conf.database if model in _COUNTERS else None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if db != conf.database or db == DEFAULT_DB_ALIAS or _is_shared():
            return None
        return app_label == _APP_LABEL and model_name in {model._meta.model_name for model in _COUNTERS}


def _is_shared() -> bool:
    own = database_of(conf.database)
    return any(database_of(alias) == own for alias in connections if alias != conf.database)
