"""Async requests change to a thread only where the database, or the project's own code, has to be asked."""

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.core.handlers.base import BaseHandler
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory
from django.urls import path

from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("clock"),
]


async def view(request):
    return HttpResponse("ok")


async def streaming(request):
    async def parts():
        yield b"ok"

    return StreamingHttpResponse(parts())


urlpatterns = [
    path("streaming", streaming),
    path("limited", view),
    path("probe", view, name="probe"),
    path("elsewhere", view),
    path("decorated", ratelimit("door")(view)),
]


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts what it hands to threads."""

    hops = 0

    def run_in_executor(self, executor, function, *args):
        self.hops += 1
        return super().run_in_executor(executor, function, *args)


@pytest.fixture(autouse=True)
def limits(settings):
    settings.MIDDLEWARE = ["ratelimit_app.middleware.RateLimitMiddleware"]
    settings.RATELIMIT_LIMITS = {"door": {"rate": "2/min", "path": "^/(limited|probe)"}}
    settings.RATELIMIT_EXEMPT = ["probe"]


@pytest.fixture
def loop():
    limiter.current_limits()  # they are known; nothing has to be read
    loop = CountingLoop()
    yield loop
    loop.run_until_complete(sync_to_async(connections.close_all)())
    loop.close()


async def served(handler, request):
    response = await handler.get_response_async(request)
    if response.streaming:
        async for _ in response:
            pass
    return response


def ask(loop, where, method="GET", **headers):
    """Serve a request as an ASGI server does; return its status and how often a thread was needed."""
    handler, before = BaseHandler(), loop.hops
    handler.load_middleware(is_async=True)
    request = AsyncRequestFactory().generic(method, where, headers=headers)
    response = loop.run_until_complete(served(handler, request))
    own = int(response.status_code >= 400)  # Django logs errors in a thread
    return response.status_code, loop.hops - before - own


@pytest.mark.parametrize(
    ("method", "where"),
    [("GET", "/elsewhere"), ("GET", "/streaming"), ("GET", "/probe"), ("OPTIONS", "/limited")],
)
def test_request_that_no_limit_matches_needs_no_thread(method, where, loop):
    assert ask(loop, where, method) == (200, 0)


@pytest.mark.parametrize("where", ["/limited", "/decorated"])
def test_request_that_is_counted_needs_one(where, loop):
    assert [ask(loop, where) for _ in range(3)] == [(200, 1), (200, 1), (429, 1)]


@pytest.mark.parametrize("where", ["/limited", "/decorated"])
def test_page_of_a_refusal_needs_another(where, loop):
    limiter.consume("door", "ip:127.0.0.1", cost=2)
    assert ask(loop, where, Accept="text/html") == (429, 2)


@pytest.mark.parametrize("where", ["/limited", "/decorated"])
def test_nothing_needs_a_thread_where_limits_are_off(where, loop, settings):
    settings.RATELIMIT_ENABLE = False
    assert [ask(loop, where) for _ in range(3)] == [(200, 0)] * 3
