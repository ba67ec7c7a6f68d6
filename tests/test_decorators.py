import asyncio

import pytest
from asgiref.sync import async_to_sync
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


@ratelimit("wide")
async def failing_async(request):
    raise ZeroDivisionError


async def nothing_async(request):
    return None


def awaitable(request):
    made = asyncio.sleep(0)
    made.close()  # nobody is to await it, and nothing is to warn of that
    return made


#: Views that answer with what is no response, which Django has to say of them.
BAD = {
    "nothing": lambda request: None,
    "nothing-async": nothing_async,
    "awaitable": awaitable,
    "text": lambda request: "text",
}

urlpatterns = [
    path("view/<int:pk>", view),
    path("both", both),
    path("failing", failing),
    path("failing-async", failing_async),
    *[path(name, ratelimit("wide")(answer)) for name, answer in BAD.items()],
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


@pytest.mark.parametrize("middleware", [True, False])
@pytest.mark.parametrize("where", ["/failing", "/failing-async"])
def test_view_that_raises_is_counted_and_raises(where, middleware, client, async_client, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    for get in (client.get, async_to_sync(async_client.get)):
        with pytest.raises(ZeroDivisionError):
            get(where)
    assert counts() == {"wide": 2}


@pytest.mark.parametrize("middleware", [True, False])
@pytest.mark.parametrize("where", [name for name in BAD if name != "text"])
def test_view_that_returns_no_response_gets_the_error_of_django(where, middleware, client, settings):
    if not middleware:
        settings.MIDDLEWARE = []
    with pytest.raises(ValueError, match="didn't return an HttpResponse object"):
        client.get(f"/{where}")
    assert counts() == {"wide": 1}


def test_view_that_returns_something_else_returns_it():
    assert ratelimit("wide")(BAD["text"])(RequestFactory().get("/")) == "text"


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


@pytest.mark.parametrize("extra", [{"key": "ip"}, {"key": ""}, {"algorithm": "token_bucket"}], ids=str)
def test_key_and_algorithm_without_a_rate_are_an_error(extra):
    with pytest.raises(TypeError, match="a named limit has its own"):
        ratelimit("tight", "wide", **extra)


async def key_async(request):
    return "me"


@pytest.mark.parametrize(
    ("rate", "extra", "said"),
    [
        ("5/q", {}, "rate: unknown unit 'q'"),
        ("0/m", {}, "quota: a whole number from 1"),
        ("my limit", {}, "rate: a number per time"),
        ("", {}, "rate: a number per time"),
        ("5/month", {"algorithm": "sliding_log"}, "rate: a sliding log has one length"),
        ("5/m", {"algorithm": "magic"}, "magic"),
        ("5/m", {"algorithm": 5}, "algorithm: one of"),
        ("5/m", {"key": "nosuch"}, "key: ip, "),
        ("5/m", {"key": ""}, "key: ip, "),
        ("5/m", {"key": "no.such.function"}, "cannot be imported"),
        ("5/m", {"key": f"{__name__}.ME"}, "is not a function"),
        ("5/m", {"key": 5}, "key: a limit's key or a function of the request"),
        ("5/m", {"key": key_async}, "not an async one"),
    ],
)
def test_rate_key_and_algorithm_that_cannot_be_used_are_an_error_at_import(rate, extra, said):
    with pytest.raises(ValueError, match=said):
        ratelimit(rate, **extra)(lambda request: HttpResponse())
    with pytest.raises(ValueError, match=said):
        method_decorator(ratelimit(rate, **extra), name="get")(type("V", (ByMethod,), {}))


@pytest.mark.parametrize("cost", [-1, 1.5, True, "1", [1]], ids=str)
def test_cost_that_cannot_be_used_is_an_error_at_import(cost):
    with pytest.raises(ValueError, match="cost: a whole number of units from 0 or a function"):
        ratelimit("tight", cost=cost)


def test_class_that_is_no_view_is_an_error():
    with pytest.raises(TypeError, match="is no view: it has no method 'dispatch'"):
        ratelimit("tight")(type("Thing", (), {}))


@pytest.mark.parametrize("args", [(), ("text",), (None, None, RequestFactory().get("/"))], ids=range(3))
def test_call_without_a_request_is_an_error(args):
    with pytest.raises(TypeError, match="was not called with a request"):
        view(*args)
    with pytest.raises(TypeError, match="was not called with a request"):
        async_to_sync(failing_async)(*args)
    assert not called
