"""System checks of limits by account or session on requests that have none."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.db import Error, router
from django.utils.module_loading import import_string

from ratelimit_app.keys import JOINT
from ratelimit_app.limits import declared, in_code
from ratelimit_app.models import Limit, Mode

ACCOUNTS = "django.contrib.auth.middleware.AuthenticationMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"

#: By what a limit counts by, the middleware that puts it on requests.
NEEDED = {"user": ACCOUNTS, "user_or_ip": ACCOUNTS, "session": SESSIONS}


@checks.register()
def check_callers(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report limits in code that count by what no middleware puts on requests."""
    return _warnings(_in_code())


@checks.register(checks.Tags.database)
def check_callers_of_rows(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report such limits among the rows, where the database may be asked."""
    return _warnings(_rows()) if databases else []


def _warnings(limits: Iterable[Limit]) -> list[checks.CheckMessage]:
    return [
        checks.Warning(
            f"The limit {limit.name!r} counts by {key!r}, and {NEEDED[key]} is not in MIDDLEWARE: it "
            "counts by address.",
            hint="Add it, anywhere, or give the limit another key.",
            id="ratelimit_app.W005",
        )
        for limit in limits
        for key in limit.key.split(JOINT)
        if key in NEEDED and limit.mode != Mode.OFF and not _is_told(limit, NEEDED[key])
    ]


def _is_told(limit: Limit, needed: str) -> bool:
    if needed == ACCOUNTS and not limit.path and apps.is_installed("rest_framework"):
        return True  # maybe: REST framework tells its throttles of accounts by itself
    return any(needed in _kinds(path) for path in settings.MIDDLEWARE)


def _kinds(path: str) -> Iterator[str]:
    """Yield the dotted paths of a middleware and of what it was made of."""
    yield path
    try:
        found = import_string(path)
    except Exception:  # Django reports it when it starts to serve
        return
    for kind in getattr(found, "__mro__", ()):
        yield f"{kind.__module__}.{kind.__qualname__}"


def _in_code() -> Iterator[Limit]:
    for name, spec in in_code().items():
        try:
            limit = declared(name, spec)
        except (ValueError, TypeError):  # E004 speaks of it
            continue
        if isinstance(limit.key, str):
            yield limit


def _rows() -> list[Limit]:
    """Return the rows; none if they cannot be read, before a migration."""
    try:
        return list(Limit.objects.using(router.db_for_write(Limit)))
    except Error:
        return []
