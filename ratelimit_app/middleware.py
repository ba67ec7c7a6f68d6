"""Limits by path and method, and the fields of all limits on every response; sync and async."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from ratelimit_app import ending, enforcement, ledger, responses
from ratelimit_app.exceptions import RateLimited

GetResponse = Callable[[HttpRequest], HttpResponseBase] | Callable[[HttpRequest], Awaitable[HttpResponseBase]]


class RateLimitMiddleware:
    """Refuse what a limit with a matching path refuses, and show the state of all limits met.

    It decides when Django has found the view and the other middleware has seen the request, so
    ``request.user`` is there wherever it stands in ``MIDDLEWARE``.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
            # Django looks at the method to know how to call it: a sync one would cost a thread each time.
            self.process_view = self._process_view_async  # type: ignore[method-assign]

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        ledger.of(request).has_middleware = True
        if iscoroutinefunction(self.get_response):
            return self._call_async(request)
        response = cast(HttpResponseBase, self.get_response(request))
        return enforcement.finish(request, response)

    async def _call_async(self, request: HttpRequest) -> HttpResponseBase:
        try:
            response = await cast(Awaitable[HttpResponseBase], self.get_response(request))
            return await enforcement.afinish(request, response)
        except asyncio.CancelledError:  # the client has left: there will be no response to close
            await ending.aend(request)
            raise

    def process_view(self, request: HttpRequest, view: Callable[..., Any], *args: Any) -> Any:
        decision = enforcement.enforce_matching(request)
        return None if decision is None or decision.allowed else responses.refusal(decision, request)

    async def _process_view_async(
        self, request: HttpRequest, view: Callable[..., Any], *args: Any
    ) -> HttpResponse | None:
        decision = await enforcement.aenforce_matching(request)
        return None if decision is None or decision.allowed else await responses.arefusal(decision, request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Turn what a view has raised, as ``limiter.limited`` does in it, into the 429."""
        if not isinstance(exception, RateLimited):
            return None
        return responses.refusal(enforcement.raised(request, exception), request)
