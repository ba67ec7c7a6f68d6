"""The system check that looks for limits which views name and nobody has declared."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import Error, router
from django.urls import URLPattern, URLResolver, get_resolver

from ratelimit_app.limits import in_code
from ratelimit_app.models import Limit
from ratelimit_app.throttling import RateLimitThrottle, as_list, named_limits

#: Where a view of REST framework says what limits it.
_NAMING = ("throttle_classes", "throttle_scope", "throttle_limits")


@checks.register(checks.Tags.database)
def check_names(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report the views in the URLs that name a limit which is neither in code nor a row.

    It reads the rows, and so runs where the database may be asked: by ``check --database`` and before
    ``migrate``.
    """
    if not databases or not getattr(settings, "ROOT_URLCONF", None):
        return []
    declared = in_code()
    named = [(view, name) for view in _views(get_resolver().url_patterns) for name in _names(view)]
    unknown = {name for _, name in named if name not in declared}
    unknown -= _rows(unknown)
    return [
        checks.Warning(
            f"{view.__module__}.{view.__qualname__} names the limit {name!r}, of which there is none: "
            "nothing is limited.",
            hint="Add it in the admin or to RATELIMIT_LIMITS, or mend the name.",
            id="ratelimit_app.W002",
        )
        for view, name in dict.fromkeys(named)
        if name in unknown
    ]


def _views(patterns: Sequence[URLPattern | URLResolver]) -> Iterator[Callable[..., Any]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from _views(pattern.url_patterns)
        else:
            yield pattern.callback


def _names(view: Callable[..., Any]) -> list[str]:
    cls = getattr(view, "cls", getattr(view, "view_class", None))
    methods = [*getattr(cls, "http_method_names", ()), *getattr(view, "actions", {}).values()]
    handlers = [getattr(cls, method, None) for method in methods]
    decorated = [name for part in (view, *handlers) for name in getattr(part, "ratelimit_names", ())]
    return [*decorated, *(_throttled(_asked(view, cls)) if cls else ())]


def _asked(view: Callable[..., Any], cls: type) -> Any:
    """Return what a class says of its limits, and what ``@action`` or ``as_view`` says in its place."""
    of_class = {name: getattr(cls, name) for name in _NAMING if hasattr(cls, name)}
    given = getattr(view, "initkwargs", {})
    return type(cls.__name__, (), of_class | {name: given[name] for name in _NAMING if name in given})


def _throttled(asked: Any) -> list[str]:
    throttles = [
        throttle
        for throttle in getattr(asked, "throttle_classes", ())
        if isinstance(throttle, type) and issubclass(throttle, RateLimitThrottle)
    ]
    by_throttle = [name for throttle in throttles for name in as_list(throttle.limits)]
    return [*(named_limits(asked) if throttles else ()), *by_throttle]


def _rows(names: set[str]) -> set[str]:
    """Return those of the names that are rows; all of them if that cannot be told, before a migration."""
    if not names:
        return set()
    try:
        return set(
            Limit.objects.using(router.db_for_write(Limit))
            .filter(name__in=names)
            .values_list("name", flat=True)
        )
    except Error:
        return names
