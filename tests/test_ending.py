"""Every way in which a request can end, under a real server: what it holds comes back at once, and once."""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.core.signals import request_finished
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, connections
from django.http import HttpResponse, StreamingHttpResponse
from django.test import RequestFactory
from django.urls import path
from django.utils.decorators import async_only_middleware, sync_only_middleware
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import enforcement, limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.policy import Policy
from ratelimit_app.throttling import RateLimitThrottle
from tests.races import in_threads
from tests.serving import served

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume"),  # sync streams under ASGI
]

LIMITS = ["slots", "failures", "successes", "after"]
BLOCK = Policy.parse("2/60s", name="block", algorithm="concurrency")
OURS = "ratelimit_app.middleware.RateLimitMiddleware"
PATIENCE = 10

#: A server that is sent this waits, as for a client that does not read.
STUCK = b"stuck"


class Gate:
    """A place in a view: it tells when it is reached, and holds until it is opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def pass_through(self):
        self.reached.set()
        assert self.opened.wait(PATIENCE)

    async def wait_for_ever(self):
        self.reached.set()
        await asyncio.Event().wait()


gate = Gate()
raises = False  # or else the client leaves


def end_sync():
    if raises:
        raise RuntimeError("half-way")
    gate.pass_through()


async def end_async():
    if raises:
        raise RuntimeError("half-way")
    await gate.wait_for_ever()


def sync_view(request):
    end_sync()
    return HttpResponse("ok")


async def async_view(request):
    await end_async()
    return HttpResponse("ok")


def sync_stream(request):
    def parts():
        yield b"a"
        end_sync()
        yield b"b"

    return StreamingHttpResponse(parts())


async def async_stream(request):
    async def parts():
        yield b"a"
        await end_async()

    return StreamingHttpResponse(parts())


async def stuck_stream(request):
    async def parts():
        yield b"a"
        yield STUCK

    return StreamingHttpResponse(parts())


class Throttled(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_limits = LIMITS

    def get(self, request):
        end_sync()
        return Response("ok")


limit = ratelimit(*LIMITS)
VIEWS = {
    "sync-view": sync_view,
    "async-view": async_view,
    "sync-stream": sync_stream,
    "async-stream": async_stream,
    "stuck-stream": stuck_stream,
}


async def late(request):
    """Meet the limits, and enter a block, when the response is there."""

    @limit
    async def part(request):
        return b"a"

    async def parts():
        yield await part(request)
        async with limiter.limited(BLOCK, "k"):
            yield b"b"
            await end_async()

    return StreamingHttpResponse(parts())


def late_sync(request):
    @limit
    def part(request):
        return b"a"

    def parts():
        yield part(request)
        with limiter.limited(BLOCK, "k"):
            yield b"b"
            end_sync()
            yield from itertools.repeat(b"c" * 100_000, 1_000)

    return StreamingHttpResponse(parts())


urlpatterns = [
    *[path(f"by-path/{name}", view) for name, view in VIEWS.items()],
    *[path(f"by-decorator/{name}", limit(view)) for name, view in VIEWS.items()],
    path("by-throttle/sync-view", Throttled.as_view()),
    path("late", late),
]
LIMITED = [f"/{where.pattern}" for where in urlpatterns]
urlpatterns.append(path("late/sync-stream", late_sync))
STREAMS = [where for where in LIMITED if where.endswith("stream") or where == "/late"]


# Middleware of a project's own


@sync_only_middleware
def sync_only(get_response):
    return lambda request: get_response(request)


@async_only_middleware
def async_only(get_response):
    async def middleware(request):
        return await get_response(request)

    return middleware


@async_only_middleware
def slow_at_the_end(get_response):
    async def middleware(request):
        response = await get_response(request)
        await gate.wait_for_ever()
        return response

    return middleware


HERE = __name__
MIDDLEWARE = {
    "none": [],
    "ours": [OURS],
    "ours-above-sync": [OURS, f"{HERE}.sync_only"],
    "ours-among-both": [f"{HERE}.async_only", f"{HERE}.sync_only", OURS, f"{HERE}.async_only"],
}
SLOW = {
    "below-slow": [f"{HERE}.slow_at_the_end", OURS],
    "slow-alone": [f"{HERE}.slow_at_the_end"],
}


@pytest.fixture(autouse=True)
def limits(settings):
    global gate, raises
    gate, raises = Gate(), False
    common = {"path": "^/by-path", "key": "global"}
    settings.RATELIMIT_LIMITS = {
        "slots": {"rate": "2/60s", "algorithm": "concurrency", **common},
        "failures": {"rate": "9/day", "charge": "failures", **common},
        "successes": {"rate": "9/day", "charge": "successes", **common},
        "after": {"rate": "9/day", "charge": "after", **common},
    }


class Server(ASGIHandler):
    """The project under a real server, which tells when a client has left and when a request ends."""

    def __init__(self):
        super().__init__()
        self.left, self.ended = threading.Event(), threading.Event()

    async def read_body(self, receive):
        self.body = await super().read_body(receive)
        return self.body

    async def handle(self, scope, receive, send):
        async def receive_and_tell():
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
            return message

        async def send_if_free(message):
            if message.get("body") == STUCK:
                await gate.wait_for_ever()
            await send(message)

        try:
            with contextlib.suppress(BaseException):
                await super().handle(scope, receive_and_tell, send_if_free)
        finally:
            # Django leaves both open where a stream fails.
            self.body.close()
            await sync_to_async(connections.close_all)()
            self.ended.set()


@contextlib.contextmanager
def asked(where):
    """Ask a server that has just been started; yield it, and a connection with its answer."""
    server = Server()
    with served(server) as port, socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(f"GET {where} HTTP/1.1\r\nHost: testserver\r\n\r\n".encode())
        yield server, connection


def leave(where):
    with asked(where) as (server, connection):
        assert gate.reached.wait(PATIENCE)
        connection.close()
        assert server.left.wait(PATIENCE)
        gate.opened.set()
        assert server.ended.wait(PATIENCE)
        return used()


def fail(where):
    global raises
    raises = True
    with asked(where) as (server, _):
        assert server.ended.wait(PATIENCE)
        return used()


def used():
    return {name: limiter.peek(name, "global").used for name in LIMITS} | {
        "block": limiter.peek(BLOCK, "k").used
    }


def charges(found):
    return [found[name] for name in ("failures", "successes", "after")]


def cases(middleware, without=()):
    """Return each address with each middleware that it is limited with."""
    return [
        (where, name)
        for where, name in itertools.product(LIMITED, middleware)
        if not where.endswith(without) and (OURS in middleware[name] or not where.startswith("/by-path"))
    ]


@pytest.mark.parametrize(("where", "middleware"), cases(MIDDLEWARE))
def test_request_whose_client_leaves_holds_nothing(where, middleware, settings):
    settings.MIDDLEWARE = MIDDLEWARE[middleware]
    found = leave(where)
    assert (found["slots"], found["block"]) == (0, 0)
    # Nothing is given back, unless the view went on and its response is known.
    assert charges(found) in ([0, 1, 1], [1, 1, 1])


@pytest.mark.parametrize(
    ("where", "middleware"), [case for case in cases(MIDDLEWARE, "stuck-stream") if case != ("/late", "none")]
)
def test_request_that_fails_holds_nothing(where, middleware, settings):
    settings.MIDDLEWARE = MIDDLEWARE[middleware]
    found = fail(where)
    assert (found["slots"], found["block"]) == (0, 0)
    assert charges(found) == ([0, 1, 1] if where in STREAMS else [1, 0, 1])


@pytest.mark.parametrize(("where", "middleware"), cases(SLOW, ("stuck-stream", "/late")))
def test_request_that_is_cancelled_above_us_holds_nothing(where, middleware, settings):
    global raises
    settings.MIDDLEWARE, raises = SLOW[middleware], True  # a view that fails does not wait
    found = leave(where)
    assert found["slots"] == 0
    assert charges(found) == ([0, 1, 1] if where in STREAMS else [1, 0, 1])


@pytest.fixture
def only_ours():
    """Have Django's own receiver close nothing: it may come before ours, or after."""
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)


@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize(("sender", "left"), [(WSGIHandler, 0), (None, 1)], ids=["server", "test-client"])
def test_thread_that_has_finished_holds_nothing_unless_it_was_for_a_test_client(sender, left):
    request = RequestFactory().get("/")

    def work(_):
        enforcement.enforce(request, ["slots"])
        request_finished.send(sender)
        return connections["ratelimit"].connection is None

    assert in_threads(1, work) == [left == 0]
    assert used()["slots"] == left


# WSGI ---------------------------------------------------------------------------------------------


class Quiet(WSGIRequestHandler):
    def log_message(self, *args):
        pass


@pytest.mark.parametrize("middleware", ["none", "ours"])
@pytest.mark.parametrize("end", ["leaves", "fails"])
@pytest.mark.parametrize(
    "where", ["/by-decorator/sync-view", "/by-decorator/sync-stream", "/late/sync-stream"]
)
def test_request_under_wsgi_holds_nothing(where, end, middleware, settings):
    global raises
    settings.MIDDLEWARE, raises = MIDDLEWARE[middleware], end == "fails"
    with make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        with socket.create_connection(server.server_address, PATIENCE) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(f"GET {where} HTTP/1.0\r\n\r\n".encode())
            assert raises or gate.reached.wait(PATIENCE)
        gate.opened.set()
        serving.join(PATIENCE)
    found = used()
    assert (found["slots"], found["block"]) == (0, 0)
    assert charges(found) == ([1, 0, 1] if raises and where.endswith("view") else [0, 1, 1])
