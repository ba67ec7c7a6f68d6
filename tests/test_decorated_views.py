"""Whatever can be a view can be limited, sync and async, under WSGI and ASGI."""

import functools

import django
import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ratelimit_app.decorators import ratelimit

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"


def ok(request, **kwargs):
    return HttpResponse("ok")


async def aok(request, **kwargs):
    return HttpResponse("ok")


class Plain(View):
    def get(self, request):
        return HttpResponse("ok")


class Awaited(View):
    async def get(self, request):
        return HttpResponse("ok")


class Method(View):
    @ratelimit("tight")
    def get(self, request):
        return HttpResponse("ok")


class AwaitedMethod(View):
    @ratelimit("tight")
    async def get(self, request):
        return HttpResponse("ok")


class AdaptedMethod(View):
    @method_decorator(ratelimit("tight"))
    def get(self, request):
        return HttpResponse("ok")


@ratelimit("tight")
class Decorated(View):
    def get(self, request):
        return HttpResponse("ok")


@ratelimit("tight")
class AwaitedDecorated(Awaited):
    pass


class BelowDecorated(Decorated):
    pass


class AnswersItself(Awaited):
    def dispatch(self, request, *args, **kwargs):
        return HttpResponse("ok")


class AwaitsItself(Awaited):
    async def dispatch(self, request, *args, **kwargs):
        return await super().dispatch(request, *args, **kwargs)


class Api(APIView):
    def get(self, request):
        return Response("ok")


class ApiMethod(APIView):
    @ratelimit("tight")
    def get(self, request):
        return Response("ok")


class ApiAdapted(APIView):
    @method_decorator(ratelimit("tight"))
    def get(self, request):
        return Response("ok")


class ApiSet(ViewSet):
    @ratelimit("tight")
    def list(self, request):
        return Response("ok")


@ratelimit("tight")
@api_view(["GET"])
def above(request):
    return Response("ok")


@api_view(["GET"])
@ratelimit("tight")
def below(request):
    return Response("ok")


limit = ratelimit("tight")
on_dispatch = method_decorator(limit, name="dispatch")
VIEWS = {
    "function": limit(ok),
    "async function": limit(aok),
    "partial": limit(functools.partial(ok, extra=1)),
    "async partial": limit(functools.partial(aok, extra=1)),
    "partial of limited": functools.partial(limit(ok), extra=1),
    "async partial of limited": functools.partial(limit(aok), extra=1),
    "callable object": limit(type("Callable", (), {"__call__": lambda self, request: ok(request)})()),
    "method": Method.as_view(),
    "async method": AwaitedMethod.as_view(),
    "adapted method": AdaptedMethod.as_view(),
    "class": Decorated.as_view(),
    "async class": AwaitedDecorated.as_view(),
    "subclass": BelowDecorated.as_view(),
    "dispatch": on_dispatch(type("Dispatched", (Plain,), {})).as_view(),
    "async dispatch": on_dispatch(type("AwaitedDispatched", (Awaited,), {})).as_view(),
    "around as_view": limit(Plain.as_view()),
    "around async as_view": limit(Awaited.as_view()),
    "dispatch that answers in an async class": ratelimit("tight")(AnswersItself).as_view(),
    "dispatch that awaits": ratelimit("tight")(AwaitsItself).as_view(),
    "api class": limit(type("ApiClass", (Api,), {})).as_view(),
    "api dispatch": on_dispatch(type("ApiDispatched", (Api,), {})).as_view(),
    "api method": ApiMethod.as_view(),
    "api adapted method": ApiAdapted.as_view(),
    "api set": ApiSet.as_view({"get": "list"}),
    "around api as_view": limit(Api.as_view()),
    "above api_view": above,
    "below api_view": below,
    "stacked": ratelimit("wide")(ratelimit("tight")(ok)),
    "async stacked": ratelimit("wide")(ratelimit("tight")(aok)),
    "several": ratelimit("wide", "tight")(ok),
    "name and rate": ratelimit("wide", "2/min")(ok),
    "async name and rate": ratelimit("wide", "2/min")(aok),
    "rate alone": ratelimit("2/m", key="ip")(ok),
    "rate by a function": ratelimit("2/m", key=lambda request: "me")(ok),
    "async rate by a function": ratelimit("2/m", key=lambda request: "me")(aok),
    "rate by algorithm": ratelimit("2/m", algorithm="token_bucket")(ok),
}
urlpatterns = [path(name.replace(" ", "-"), view) for name, view in VIEWS.items()]
if django.VERSION >= (6, 0):  # before that, Django's adapter hides that a method is async

    class AwaitedAdaptedMethod(View):
        @method_decorator(ratelimit("tight"))
        async def get(self, request):
            return HttpResponse("ok")

    urlpatterns.append(path("async-adapted-method", AwaitedAdaptedMethod.as_view()))


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {"tight": "2/min", "wide": "9/min"}


@pytest.mark.parametrize("middleware", [[MIDDLEWARE], []], ids=["middleware", "without"])
@pytest.mark.parametrize("make_client", [Client, AsyncClient])
@pytest.mark.parametrize("where", [str(pattern.pattern) for pattern in urlpatterns])
def test_view_is_limited_and_says_so(where, make_client, middleware, settings):
    settings.MIDDLEWARE = middleware
    client = make_client()
    get = async_to_sync(client.get) if make_client is AsyncClient else client.get
    answers = [get(f"/{where}") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [b"ok" in answer.content for answer in answers] == [True, True, False]
    # Outer limits are met first, and are not what is tight here.
    shown = [answer["RateLimit"].rpartition("r=")[2].partition(";")[0] for answer in answers]
    assert shown == ["1", "0", "0"]
    assert answers[2]["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("where", ["async-class", "async-dispatch", "around-async-as_view"])
def test_methods_of_async_classes_that_are_not_written_answer_as_ever(where, client, async_client):
    assert [send(f"/{where}").status_code for send in (client.options, client.put)] == [200, 405]
    sends = [async_to_sync(send) for send in (async_client.options, async_client.put)]
    assert [send(f"/{where}").status_code for send in sends] == [200, 405]
