"""Limits on a single view: a function, a method or a class, sync or async."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from rest_framework.request import Request

from ratelimit_app import enforcement, inline, responses
from ratelimit_app.enforcement import Cost, LimitLike
from ratelimit_app.inline import InlineLimit, Key

View = Callable[..., Any]
OnView = str | InlineLimit
V = TypeVar("V", bound=View)


def ratelimit(
    *limits: str,
    key: Key | None = None,
    algorithm: str | None = None,
    cost: Cost = None,
) -> Callable[[V], V]:
    """Apply limits, as one decision, to a view function, a view's method or a class-based view.

    Each of ``limits`` is the name of a limit, or a rate such as ``5/m``, which is a limit of this view
    alone: by ``key`` (a limit's ``key``, or a function of the request; by default ``ip``) and counted by
    ``algorithm`` (by default ``fixed_window``). ``cost`` is a number of units or a function of the request
    that returns one, 0 meaning that the request is free. Where they refuse, the view is not called and the
    answer is the 429.

    Raises, while the view's module is imported, ``TypeError`` where no limit is given, and ``ValueError``
    for a rate, a key, an algorithm or a cost that cannot be used.
    """
    if not limits or not all(isinstance(limit, str) for limit in limits):
        raise TypeError("ratelimit: give the name of at least one limit, as in @ratelimit('login')")
    if not (key is None and algorithm is None) and not any(_is_rate(limit) for limit in limits):
        raise TypeError(
            "ratelimit: a named limit has its own; 'key' and 'algorithm' go with a rate, as in '5/m'"
        )
    enforcement.check_cost(cost)

    def decorate(view: V) -> V:
        found: list[OnView] = [
            inline.make(view, limit, key="ip" if key is None else key, algorithm=algorithm or "fixed_window")
            if _is_rate(limit)
            else limit
            for limit in limits
        ]
        if isinstance(view, type):
            if not hasattr(view, "dispatch"):
                raise TypeError(f"ratelimit: {view!r} is no view: it has no method 'dispatch'")
            view.dispatch = _limit(view.dispatch, found, cost)
            return view
        return cast(V, _limit(view, found, cost))

    return decorate


def _limit(view: View, limits: Sequence[OnView], cost: Cost) -> View:
    async def limited_async(*args: Any, **kwargs: Any) -> Any:
        request = _request(view, args)

        async def respond() -> Any:
            decision = await enforcement.aenforce(request, _at(request, limits), cost)
            if decision is not None and not decision.allowed:
                return await responses.arefusal(decision, request)
            return await _called(view, args, kwargs)

        # The client may leave while the limits are asked, too.
        return await enforcement.afinishing(request, respond())

    def limited_sync(*args: Any, **kwargs: Any) -> Any:
        if _is_of_async_class(view, args):  # its ``dispatch`` looks like a sync one
            return limited_async(*args, **kwargs)
        request = _request(view, args)
        decision = enforcement.enforce(request, _at(request, limits), cost)
        if decision is not None and not decision.allowed:
            return responses.refusal(decision, request)
        return enforcement.finishing(request, lambda: view(*args, **kwargs))

    limited = functools.wraps(view)(limited_async if iscoroutinefunction(view) else limited_sync)
    # For the system check that looks for names which nobody has declared.
    names = [limit for limit in limits if isinstance(limit, str)]
    limited.ratelimit_names = (*names, *getattr(view, "ratelimit_names", ()))  # type: ignore[attr-defined]
    return limited


def _at(request: HttpRequest | Request, limits: Iterable[OnView]) -> list[LimitLike]:
    return [limit.at(request) if isinstance(limit, InlineLimit) else limit for limit in limits]


async def _called(view: View, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    made = view(*args, **kwargs)
    # A ``dispatch`` that a project has written may answer by itself, before the async method.
    return await made if inspect.isawaitable(made) else made


def _request(view: View, args: Sequence[object]) -> HttpRequest | Request:
    for argument in args[:2]:  # a method has ``self`` before it
        if isinstance(argument, HttpRequest | Request):
            return argument
    raise TypeError(f"ratelimit: {view!r} was not called with a request")


def _is_rate(limit: str) -> bool:
    return not re.fullmatch(r"[-\w]+", limit)  # a name is a slug


def _is_of_async_class(view: View, args: Sequence[object]) -> bool:
    bound = getattr(view, "func", view)  # ``method_decorator`` hands over a partial of a bound method
    instance = getattr(bound, "__self__", args[0] if args else None)
    return bool(getattr(instance, "view_is_async", False))
