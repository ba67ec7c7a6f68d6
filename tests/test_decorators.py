import pytest
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

ME = "ip:127.0.0.1"
called = []


@ratelimit("tight")
def view(request, *args, **kwargs):
    """Say ok."""
    called.append((args, kwargs))
    return HttpResponse("ok")


@ratelimit("wide", "tight")
def both(request):
    return HttpResponse("ok")


@ratelimit("wide")
def failing(request):
    raise ZeroDivisionError


@method_decorator(ratelimit("tight"), name="dispatch")
class ByClass(View):
    def get(self, request):
        return HttpResponse("ok")


class ByMethod(View):
    @method_decorator(ratelimit("tight"))
    def post(self, request):
        return HttpResponse("ok")

    def get(self, request):
        return HttpResponse("ok")


async def awaited(request):
    return HttpResponse("ok")


class Awaited(View):
    async def get(self, request):
        return HttpResponse("ok")


urlpatterns = [
    path("view/<int:pk>", view),
    path("both", both),
    path("failing", failing),
    path("class", ByClass.as_view()),
    path("method", ByMethod.as_view()),
    path("nosuch", ratelimit("nosuch")(lambda request: HttpResponse("ok"))),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {"tight": "2/min", "wide": "5/min"}
    called.clear()


def counts():
    return {row.key.partition("@")[0]: row.count for row in Counter.objects.all()}


@pytest.mark.parametrize("middleware", [True, False])
def test_view_is_limited_and_shows_it_with_and_without_the_middleware(middleware, client, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    answers = [client.get("/view/1") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["RateLimit"] for answer in answers] == [f'"tight";r={r};t=60' for r in (1, 0, 0)]
    assert {answer["RateLimit-Policy"] for answer in answers} == {'"tight";q=2;w=60'}
    assert (answers[2]["Retry-After"], answers[2]["Cache-Control"]) == ("60", "no-store")
    assert answers[2]["Content-Type"] == "application/problem+json"
    assert answers[2].json()["violated-policies"] == ["tight"]
    assert ME not in answers[2].text


def test_view_is_called_with_what_it_was_given_and_not_when_refused(client):
    for _ in range(3):
        client.get("/view/7")
    assert called == [((), {"pk": 7})] * 2


def test_view_keeps_its_name_and_its_marks():
    def marked(request):
        return HttpResponse()

    marked.csrf_exempt = True
    assert (view.__name__, view.__doc__) == ("view", "Say ok.")
    assert ratelimit("tight")(marked).csrf_exempt


def test_several_limits_are_one_decision(client):
    answers = [client.get("/both") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[1]["RateLimit"] == '"wide";r=3;t=60, "tight";r=0;t=60'
    assert answers[2].json()["violated-policies"] == ["tight"]
    assert counts() == {"wide": 2, "tight": 2}


def test_view_that_raises_is_counted_and_raises(client):
    with pytest.raises(ZeroDivisionError):
        client.get("/failing")
    assert counts() == {"wide": 1}


@pytest.mark.parametrize(("where", "method"), [("/class", "get"), ("/method", "post")])
def test_class_and_method_are_limited(where, method, client):
    assert [getattr(client, method)(where).status_code for _ in range(3)] == [200, 200, 429]


def test_method_leaves_the_other_methods_free(client):
    assert [client.get("/method").status_code for _ in range(3)] == [200] * 3


def test_view_called_by_code_is_limited_too():
    statuses = [view(RequestFactory().get("/")).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_options_are_free(client):
    assert [client.options("/view/1").status_code for _ in range(3)] == [200] * 3
    assert not Counter.objects.exists()


def test_unknown_name_limits_nothing_and_is_reported(client, caplog):
    assert [client.get("/nosuch").status_code for _ in range(3)] == [200] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_cost_of_the_limit_is_taken(client, settings):
    settings.RATELIMIT_LIMITS = {"tight": {"rate": "10/min", "cost": 4}}
    answers = [client.get("/view/1") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert limiter.peek("tight", ME).remaining == 2


# What cannot be decorated -------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(), (view,), (None,), (5,), ("tight", 5), (["tight"],)], ids=range(6))
def test_names_that_are_none_are_an_error(names):
    with pytest.raises(TypeError, match="name of at least one limit"):
        ratelimit(*names)
