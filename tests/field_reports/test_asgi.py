"""Report T05: async views, async handlers of refusals and other scopes, under a real ASGI server."""

import functools
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.http import HttpResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path
from django.views import View
from rest_framework.response import Response
from rest_framework.views import APIView
from websockets.sync.client import connect

from project.asgi import application as django_application
from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter
from ratelimit_app.throttling import RateLimitThrottle
from tests.serving import get, served

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("clock"),
]


async def echo(scope, receive, send):
    """Answer a websocket with what it says, once."""
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    said = await receive()
    await send({"type": "websocket.send", "text": said["text"]})
    await send({"type": "websocket.close"})


async def application(scope, receive, send):
    """Give websockets to their own application, and all else to Django, as Channels does."""
    serve = echo if scope["type"] == "websocket" else django_application
    await serve(scope, receive, send)


def sync_function(request):
    return HttpResponse("ok")


async def async_function(request):
    return HttpResponse("ok")


class SyncClass(View):
    def get(self, request):
        return HttpResponse("ok")


class AsyncClass(View):
    async def get(self, request):
        return HttpResponse("ok")


class Throttled(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "case"

    def get(self, request):
        return Response("ok")


async def streaming(request):
    async def parts():
        yield b"o"
        yield b"k"

    return StreamingHttpResponse(parts())


async def raising(request):
    async with limiter.limited("case", "ip:127.0.0.1"):
        return HttpResponse("ok")


limit = ratelimit("case")
VIEWS = {
    "sync-function": sync_function,
    "async-function": async_function,
    "sync-class": SyncClass.as_view(),
    "async-class": AsyncClass.as_view(),
    "streaming": streaming,
}
urlpatterns = [
    *[path(f"by-middleware/{name}", view) for name, view in VIEWS.items()],
    *[path(f"by-decorator/{name}", limit(view)) for name, view in VIEWS.items()],
    path("by-decorator/class-itself", limit(type("Limited", (AsyncClass,), {})).as_view()),
    path("by-throttle", Throttled.as_view()),
    path("raising", raising),
]
WHERE = [f"/{where.pattern}" for where in urlpatterns]


def own(request, decision):
    return HttpResponse(f"{decision.limit}: slow down", status=429)


async def own_async(request, decision):
    return own(request, decision)


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {"case": {"rate": "5/min", "path": "^/by-middleware/"}}


@pytest.fixture(scope="module")
def port():
    with served(application) as port:
        yield port


@pytest.mark.parametrize("where", WHERE)
def test_t05_view_is_limited_under_a_real_server(where, port):
    """Five pass and the sixth is refused in full, whatever the view is and whoever limits it."""
    answers = [get(port, where) for _ in range(6)]
    assert [status for status, _, _ in answers] == [200] * 5 + [429]
    assert {body.strip(b'"') for _, _, body in answers[:5]} == {b"ok"}
    _, fields, body = answers[5]
    assert json.loads(body)["violated-policies"] == ["case"]
    assert (fields["content-type"], fields["retry-after"]) == ("application/problem+json", "60")
    assert fields["ratelimit"] == '"case";r=0;t=60'


@pytest.mark.parametrize("refusal", ["own", "own_async"])
@pytest.mark.parametrize("where", WHERE)
def test_t05_handler_of_refusals_may_be_sync_and_async(where, refusal, port, settings):
    settings.RATELIMIT_REFUSAL = f"{__name__}.{refusal}"
    limiter.consume("case", "ip:127.0.0.1", cost=5)
    status, fields, body = get(port, where)
    assert (status, body, fields["retry-after"]) == (429, b"case: slow down", "60")


@pytest.mark.parametrize("where", WHERE)
def test_t05_page_for_browsers_comes_from_an_async_view_too(where, port):
    limiter.consume("case", "ip:127.0.0.1", cost=5)
    status, fields, body = get(port, where, {"Accept": "text/html"})
    assert (status, fields["content-type"]) == (429, "text/html; charset=utf-8")
    assert b"Too many requests" in body or b"HTTP 429 Too Many Requests" in body


@pytest.mark.parametrize("where", WHERE)
def test_t05_view_is_limited_under_wsgi(where):
    answers = [Client().get(where) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert Client().get(where).status_code == 429


@pytest.mark.parametrize("where", ["/by-middleware/async-function", "/by-decorator/async-function"])
def test_t05_count_of_concurrent_requests_is_exact(where, port, settings):
    settings.RATELIMIT_LIMITS = {"case": {"rate": "10/min", "path": "^/by-middleware/"}}
    settings.RATELIMIT_TIMEOUT = 30  # who waits for the one writer of SQLite is counted all the same
    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(functools.partial(get, port), [where] * 40))
    assert sorted(status for status, _, _ in answers) == [200] * 10 + [429] * 30
    assert Counter.objects.get().count == 10


def test_t05_websocket_passes_through_untouched(port, settings):
    """Django serves no websockets, and no limit counts them, however tight."""
    settings.RATELIMIT_LIMITS = {
        "case": {"rate": "1/min", "path": ""},
        "all": {"rate": "1/min", "path": ".*"},
    }
    for _ in range(3):
        with connect(f"ws://127.0.0.1:{port}/by-middleware/async-function") as socket:
            socket.send("hello")
            assert socket.recv() == "hello"
    assert not Counter.objects.exists()
    assert [get(port, "/by-middleware/async-function")[0] for _ in range(2)] == [200, 429]
