"""One limit in one state answers alike, whichever way a request comes to it."""

import json
import logging

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view, throttle_classes
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.throttling import RateLimitThrottle
from tests.outages import outage

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"
HANDLER = "ratelimit_app.throttling.exception_handler"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def plain(request):
    return HttpResponse("ok")


async def awaited(request):
    return HttpResponse("ok")


def raising(request):
    with limiter.limited("door", "ip:127.0.0.1"):
        return HttpResponse("ok")


async def raising_async(request):
    async with limiter.limited("door", "ip:127.0.0.1"):
        return HttpResponse("ok")


@ratelimit("door")
class AwaitedClass(View):
    async def get(self, request):
        return HttpResponse("ok")


class Throttled(APIView):
    renderer_classes = (JSONRenderer,)
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "door"

    def get(self, request):
        return Response("ok")


class Raising(APIView):
    renderer_classes = (JSONRenderer,)

    def get(self, request):
        return raising(request)


@method_decorator(ratelimit("door"), name="get")
class Decorated(Raising):
    pass


@api_view(["GET"])
@throttle_classes([type("Door", (RateLimitThrottle,), {"limits": ("door",)})])
def function(request):
    return Response("ok")


function.cls.renderer_classes = (JSONRenderer,)

urlpatterns = [
    path("by-path/sync", plain),
    path("by-path/async", awaited),
    path("by-path/drf", function),
    path("decorated/sync", ratelimit("door")(plain)),
    path("decorated/async", ratelimit("door")(awaited)),
    path("decorated/class", AwaitedClass.as_view()),
    path("decorated/drf", Decorated.as_view()),
    path("throttled/class", Throttled.as_view()),
    path("throttled/function", function),
    path("raised/sync", raising),
    path("raised/async", raising_async),
    path("raised/drf", Raising.as_view()),
]

#: A way to the limit: where, whether the middleware is there, and REST framework's handler of exceptions.
WAYS = [
    *[(where.pattern._route, True, None) for where in urlpatterns],
    ("decorated/sync", False, None),
    ("decorated/async", False, None),
    ("decorated/class", False, None),
    ("decorated/drf", False, None),
    ("throttled/class", False, None),
    ("throttled/class", False, HANDLER),
    ("throttled/class", True, HANDLER),
    ("throttled/function", False, HANDLER),
    ("raised/drf", False, HANDLER),
    ("raised/drf", True, HANDLER),
]


def own(request, decision):
    return HttpResponse(f"{decision.limit}: slow down", status=503, headers={"Retry-After": "9"})


async def own_async(request, decision):
    return own(request, decision)


@pytest.fixture(autouse=True)
def limits(settings, clock):
    settings.RATELIMIT_LIMITS = {"door": {"rate": "4/min", "path": "^/by-path/"}, "other": "9/h"}
    limiter.consume("door", "ip:127.0.0.1", cost=4)
    clock.advance(12.5)


def ask(way, settings, client, accept):
    where, has_middleware, handler = way
    settings.MIDDLEWARE = [MIDDLEWARE] if has_middleware else []
    settings.REST_FRAMEWORK = {"EXCEPTION_HANDLER": handler} if handler else {}
    get = async_to_sync(client.get) if isinstance(client, AsyncClient) else client.get
    answer = get(f"/{where}", headers={"Accept": accept} if accept else {})
    shown = dict(answer.items())
    shown.pop("Allow", None)  # REST framework says it on every response
    return answer.status_code, answer.content, shown


@pytest.mark.parametrize("refusal", ["", f"{__name__}.own", f"{__name__}.own_async"], ids=str)
@pytest.mark.parametrize("accept", [None, "application/json", BROWSER, "image/png, */*;q=0.1"])
def test_refusal_is_byte_equal_by_every_way_sync_and_async(refusal, accept, settings):
    settings.RATELIMIT_REFUSAL = refusal
    status, body, fields = ask(WAYS[0], settings, Client(), accept)
    assert status == (503 if refusal else 429)
    assert fields["Content-Type"].startswith(
        "text/html" if refusal or accept == BROWSER else "application/problem+json"
    )
    for way in WAYS:
        for client in (Client(), AsyncClient()):
            assert ask(way, settings, client, accept) == (status, body, fields), (way, client)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("accept", [None, BROWSER])
def test_outage_under_deny_is_byte_equal_by_every_way_sync_and_async(accept, settings, caplog):
    settings.RATELIMIT_ON_ERROR = "deny"
    settings.RATELIMIT_REFUSAL = f"{__name__}.own"  # that is for refusals by a quota
    with outage("table"):
        status, body, fields = ask(WAYS[0], settings, Client(), accept)
        assert (status, fields["Retry-After"], fields["Cache-Control"]) == (503, "1", "no-store")
        assert json.loads(body) == {
            "type": "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "title": "Temporary reduced capacity",
            "status": 503,
            "detail": "Requests cannot be counted at the moment. Try again in 1 second.",
            "violated-policies": ["door"],
            "retry_after": 1,
        }
        for way in WAYS:
            for client in (Client(), AsyncClient()):
                assert ask(way, settings, client, accept) == (status, body, fields), (way, client)
    # Django would log each 503, and mail it to the admins; ours says once a minute what is wrong.
    assert {record.name for record in caplog.records if record.levelno >= logging.ERROR} == {"ratelimit_app"}
