"""Limits on a single view."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ratelimit_app import enforcement, responses

View = Callable[..., HttpResponseBase]


def ratelimit(*names: str) -> Callable[[View], View]:
    """Apply limits, by name and as one decision, to a view function.

    Where they refuse, the view is not called and the answer is the 429. Raises ``TypeError`` for
    a view that is ``async``, and where no name is given.
    """
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError("ratelimit: give the name of at least one limit, as in @ratelimit('login')")

    def decorate(view: View) -> View:
        if iscoroutinefunction(view):
            raise _async_error(view)

        @functools.wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            decision = enforcement.enforce_named(request, names)
            if decision is not None and not decision.allowed:
                return responses.refusal(decision)
            response = view(request, *args, **kwargs)
            if inspect.iscoroutine(response):
                response.close()
                raise _async_error(view)
            responses.add_fields(response, enforcement.decisions(request))
            return response

        # For the system check that looks for names which nobody has declared.
        limited.ratelimit_names = (*names, *getattr(view, "ratelimit_names", ()))  # type: ignore[attr-defined]
        return limited

    return decorate


def _async_error(view: object) -> TypeError:
    return TypeError(f"ratelimit: {view!r} is async, and only sync views can be limited")
