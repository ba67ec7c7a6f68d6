"""The system check of transactions around whole views on the counters' alias."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections

from ratelimit_app.conf import conf


@checks.register()
def check_atomic_requests(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report counters on an alias on which every view is in a transaction."""
    if conf.database not in connections or not connections[conf.database].settings_dict["ATOMIC_REQUESTS"]:
        return []
    return [
        checks.Warning(
            f"The counters' alias {conf.database!r} has ATOMIC_REQUESTS: every thread that serves a view "
            "takes a second connection to count on, and on SQLite a view that fails takes its count back.",
            hint="Give RATELIMIT_DATABASE an alias of its own, without ATOMIC_REQUESTS; to the same "
            "database, if it is not SQLite.",
            id="ratelimit_app.W007",
        )
    ]
