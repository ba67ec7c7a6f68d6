"""A limit that a view brings along: a rate, with counters of that view's own."""

import dataclasses
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from rest_framework.request import Request

from ratelimit_app import keys
from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import Policy

Key = str | Callable[[HttpRequest], object]


@dataclasses.dataclass(frozen=True, slots=True)
class InlineLimit:
    """The limit of one view alone, named by its rate.

    ``by_route`` says that the view's name is that of other views too, as of those that one function
    makes: their counters are set apart by the routes that lead to them.
    """

    limit: LiveLimit
    by_route: bool

    def at(self, request: HttpRequest | Request) -> LiveLimit:
        """Return the limit as a request meets it."""
        match = request.resolver_match
        if match is None or not self.by_route:
            return self.limit
        return dataclasses.replace(self.limit, space=f"{self.limit.space}:{match.route}")


def make(view: Callable[..., Any], rate: str, *, key: Key, algorithm: str) -> InlineLimit:
    """Make the limit of a view; raise ``ValueError`` where the rate, key or algorithm cannot be used."""
    owner, is_unique = _owner(view)
    limit = LiveLimit(
        policy=Policy.parse(rate, algorithm=algorithm),
        # The same in every process, and after a restart.
        space=f"{owner}:{rate}:{key if isinstance(key, str) else _path(key)}@view",
        key=_key(key),
    )
    return InlineLimit(limit, by_route=not is_unique)


def _owner(view: Callable[..., Any]) -> tuple[str, bool]:
    """Return a view's name, and whether it is that of no other view."""
    made_of = getattr(view, "view_class", None) or getattr(view, "cls", None)
    if made_of is not None:  # by ``as_view``, each time another view
        return _path(made_of), False
    method = getattr(view, "func", None)  # ``method_decorator`` hands over a partial of a bound method
    instance = getattr(method, "__self__", None)
    if method is not None and instance is not None:
        owner = next(cls for cls in type(instance).__mro__ if method.__name__ in vars(cls))
        return f"{_path(owner)}.{method.__name__}", "<" not in owner.__qualname__
    if method is not None:
        return _path(method), False
    return _path(view), hasattr(view, "__qualname__") and "<" not in view.__qualname__


def _key(key: Key) -> keys.KeyFunction:
    if isinstance(key, str):
        return keys.load(key)
    if not callable(key) or iscoroutinefunction(key):
        raise ValueError(f"key: a limit's key or a function of the request, not an async one, got {key!r}")
    return keys.own(key)


def _path(thing: Any) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{named.__qualname__}"
