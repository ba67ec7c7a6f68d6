"""Limits by path and method, and the fields of all limits on every response."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ratelimit_app import enforcement, responses


class RateLimitMiddleware:
    """Refuse what a limit with a matching path refuses, and show the state of all limits met.

    It decides when Django has found the view and the other middleware has seen the request, so
    ``request.user`` is there wherever it stands in ``MIDDLEWARE``.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        refused = enforcement.refusing(request)
        if refused and response.status_code == responses.STATUS and isinstance(response, HttpResponse):
            responses.turn_into_refusal(response, refused)
        responses.add_fields(response, enforcement.decisions(request))
        return response

    def process_view(self, request: HttpRequest, view: Callable[..., Any], *args: Any) -> HttpResponse | None:
        decision = enforcement.enforce_matching(request)
        return None if decision is None or decision.allowed else responses.refusal(decision)
