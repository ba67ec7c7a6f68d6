"""Limits on the views of Django REST framework, and its exception handler for their refusals."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.http.response import HttpResponseBase
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle

from ratelimit_app import charging, enforcement, ledger, responses
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.exceptions import RateLimited

if TYPE_CHECKING:  # the framework's views import this module, where it is in DEFAULT_THROTTLE_CLASSES
    from rest_framework.views import APIView

#: The actions of a viewset that ``throttle_limits`` does not name.
OTHER_ACTIONS = "*"


def named_limits(view: "APIView | type[APIView]") -> list[str]:
    """Return the limits that a view names in ``throttle_scope`` and ``throttle_limits``.

    Of a class, those of all its actions.
    """
    scope: str | None = getattr(view, "throttle_scope", None)
    limits: str | Sequence[str] | Mapping[str, str | Sequence[str]] = getattr(view, "throttle_limits", ())
    if isinstance(limits, Mapping):
        action = getattr(view, "action", None) or OTHER_ACTIONS
        is_class = isinstance(view, type)
        chosen = limits.values() if is_class else [limits.get(action, limits.get(OTHER_ACTIONS, ()))]
        found = [name for names in chosen for name in as_list(names)]
    else:
        found = as_list(limits)
    return [*([scope] if scope else []), *found]


class RateLimitThrottle(BaseThrottle):
    """Apply the limits that a view names, as one decision.

    The view names one in ``throttle_scope`` and any number in ``throttle_limits``: a list, or lists by
    the action of a viewset, ``*`` standing for those that are not named. ``throttle_cost`` is a number of
    units or a function of the request. A subclass may name ``limits`` for all views that it is put on.
    """

    limits: Sequence[str] = ()

    _decision: Decision | None = None

    def allow_request(self, request: Request, view: "APIView") -> bool:
        """Count the request; return whether it may go on."""
        names = [*as_list(self.limits), *named_limits(view)]
        self._decision = enforcement.enforce(request, names, getattr(view, "throttle_cost", None))
        if not ledger.of(request).has_middleware:
            _finish_with(view)
        return self._decision is None or self._decision.allowed

    def wait(self) -> float | None:
        """Return the seconds to wait after a refusal; ``None`` when waiting never helps."""
        return self._decision.retry_after_seconds if self._decision else None


def exception_handler(error: Exception, context: dict[str, Any]) -> HttpResponseBase | None:
    """Answer a refusal as the middleware does; leave everything else to REST framework's own handler.

    For ``EXCEPTION_HANDLER`` of projects that go without the middleware.
    """
    from rest_framework import views

    request: Request = context["request"]
    refused = enforcement.raised(request, error) if isinstance(error, RateLimited) else None
    if isinstance(error, Throttled):
        refused = enforcement.refusing(request)
    if refused is None:
        return views.exception_handler(error, context)
    views.set_rollback()
    renderer = getattr(request, "accepted_renderer", None)
    if conf.refusal or renderer is None or renderer.media_type != "text/html":
        return responses.refusal(refused, request._request)
    # The browsable API shows it in its own page.
    response = Response(responses.problem(refused), status=responses.status(refused))
    return responses.complete(response, refused)


def _finish_with(view: "APIView") -> None:
    """Let a view finish its request: here, nothing else sees the response, or that there is none."""
    finalize: Callable[..., HttpResponseBase] = view.finalize_response
    reraise: Callable[[Exception], None] = view.raise_uncaught_exception

    def finalize_and_finish(request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = finalize(request, *args, **kwargs)
        return enforcement.finish(request, response)

    def settle_and_raise(error: Exception) -> None:
        charging.settle(ledger.plain(view.request), HTTPStatus.INTERNAL_SERVER_ERROR)
        reraise(error)

    view.finalize_response = finalize_and_finish  # type: ignore[method-assign,assignment]
    view.raise_uncaught_exception = settle_and_raise  # type: ignore[method-assign,assignment]


def as_list(names: str | Sequence[str]) -> list[str]:
    """Return names as a list, which one name alone need not be."""
    return [names] if isinstance(names, str) else list(names)
