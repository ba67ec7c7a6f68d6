"""The system check of what ends waiting on the connection of the counters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections

from ratelimit_app.conf import conf

#: By vendor, the options that end waiting, each with how to find it, and an example. SQLite has no server.
WANTED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "postgresql": (
        {
            "connect_timeout": "connect_timeout",
            "lock_timeout or statement_timeout in 'options'": "(lock|statement)_timeout",
        },
        '{"connect_timeout": 2, "options": "-c lock_timeout=1s -c statement_timeout=5s"}',
    ),
    "mysql": (
        {"connect_timeout": "connect_timeout", "read_timeout": "read_timeout"},
        '{"connect_timeout": 2, "read_timeout": 5}',
    ),
}

#: Options that name a file, which may set the others.
_ELSEWHERE = {"service", "read_default_file"}


@checks.register(deploy=True)
def check_timeouts(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report a connection on which statements may wait for longer than anybody waits for them."""
    if conf.database not in connections or connections[conf.database].vendor not in WANTED:
        return []
    connection = connections[conf.database]
    wanted, example = WANTED[connection.vendor]
    missing = _missing(wanted, connection.settings_dict["OPTIONS"])
    if not missing:
        return []
    return [
        checks.Warning(
            f"The OPTIONS of the counters' alias {conf.database!r} have no {', no '.join(missing)}.",
            hint="RATELIMIT_TIMEOUT ends the wait of the caller alone. These end what the server, or a "
            f"connection that was lost, goes on with after that: OPTIONS = {example}. Where the server, its "
            "role or its account sets them, silence this check.",
            id="ratelimit_app.W006",
        )
    ]


def _missing(wanted: Mapping[str, str], options: Mapping[str, object]) -> list[str]:
    if not _ELSEWHERE.isdisjoint(options):
        return []
    words = " ".join([*options, str(options.get("options", ""))])
    return [name for name, pattern in wanted.items() if not re.search(rf"\b{pattern}\b", words)]
