"""The views of REST framework that can be throttled, with and without the middleware."""

import pytest
from django.contrib.auth.models import Group
from django.db import connections
from django.urls import include, path
from rest_framework.authentication import TokenAuthentication
from rest_framework.decorators import action, api_view, throttle_classes
from rest_framework.exceptions import AuthenticationFailed, ValidationError
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ratelimit_app import charging, limiter
from ratelimit_app.models import Counter
from ratelimit_app.throttling import RateLimitThrottle

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

ME = "ip:127.0.0.1"
MIDDLEWARE = "ratelimit_app.middleware.RateLimitMiddleware"
HANDLER = {"EXCEPTION_HANDLER": "ratelimit_app.throttling.exception_handler"}
both = pytest.mark.parametrize("middleware", [[MIDDLEWARE], []], ids=["middleware", "without"])


class ByAction(ViewSet):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "all"
    throttle_limits = {"list": ["one", "two"], "create": "two", "*": ["rest"], "free": []}

    def list(self, request):
        return Response("ok")

    def create(self, request):
        return Response("ok")

    def retrieve(self, request, pk):
        return Response("ok")

    @action(detail=False)
    def free(self, request):
        return Response("ok")


class BesideTheMethod(ViewSet):
    throttle_classes = (RateLimitThrottle,)
    throttle_limits = ()
    throttle_scope = None

    def list(self, request):
        return Response("ok")

    @action(detail=False, throttle_limits=["one", "two"])
    def limited(self, request):
        return Response("ok")

    @action(detail=False, throttle_scope="ten", throttle_limits="two")
    def scoped(self, request):
        return Response("ok")


class Door(RateLimitThrottle):
    limits = ("one", "two")


class Never(BaseThrottle):
    def allow_request(self, request, view):
        return False


class Cost(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "ten"
    throttle_cost = 4

    def get(self, request):
        return Response("ok")


class CostOfRequest(Cost):
    @staticmethod
    def throttle_cost(request):
        return int(request.GET["cost"])


class WithOthers(Cost):
    throttle_classes = (RateLimitThrottle, Never)


@api_view(["GET"])
@throttle_classes([Door])
def function(request):
    return Response("ok")


class Charged(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_limits = ("failures", "tokens")

    def get(self, request):
        charging.set_cost(request, "tokens", 7)
        if "bad" in request.GET:
            raise ValidationError("bad")
        return Response("ok")


class Writing(APIView):
    def get(self, request):
        Group.objects.create(name="written")
        with limiter.limited("one", ME):
            return Response("ok")


class Tokens(TokenAuthentication):
    def authenticate_credentials(self, key):
        raise AuthenticationFailed("Invalid token.")


class Private(APIView):
    authentication_classes = (Tokens,)
    permission_classes = (IsAuthenticated,)
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "one"

    def get(self, request):
        return Response("ok")


router = SimpleRouter()
router.register("things", ByAction, basename="thing")
router.register("beside", BesideTheMethod, basename="beside")
urlpatterns = [
    path("", include(router.urls)),
    path("function", function),
    path("cost", Cost.as_view()),
    path("cost-of-request", CostOfRequest.as_view()),
    path("others", WithOthers.as_view()),
    path("charged", Charged.as_view()),
    path("writing", Writing.as_view()),
    path("private", Private.as_view()),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        **dict.fromkeys(("one", "rest"), "1/min"),
        **dict.fromkeys(("two", "all"), "9/min"),
        "ten": "10/min",
        "failures": {"rate": "2/min", "charge": "failures"},
        "tokens": {"rate": "100/min"},
        "tries": {"rate": "10/min", "path": "^/private"},
    }


def used():
    names = ("one", "two", "all", "rest", "ten", "failures", "tokens")
    return {name: used for name in names if (used := limiter.peek(name, ME).used)}


@both
@pytest.mark.parametrize(
    ("method", "where", "taken"),
    [
        ("get", "/things/", {"all": 1, "one": 1, "two": 1}),
        ("post", "/things/", {"all": 1, "two": 1}),
        ("get", "/things/5/", {"all": 1, "rest": 1}),
        ("get", "/things/free/", {"all": 1}),
        ("options", "/things/", {}),
        ("delete", "/things/", {"all": 1, "rest": 1}),
        ("get", "/beside/", {}),
        ("get", "/beside/limited/", {"one": 1, "two": 1}),
        ("get", "/beside/scoped/", {"ten": 1, "two": 1}),
    ],
)
def test_viewset_takes_the_limits_of_its_action(method, where, taken, middleware, client, settings):
    settings.MIDDLEWARE = middleware
    assert getattr(client, method)(where).status_code == (405 if method == "delete" else 200)
    assert used() == taken


@pytest.mark.parametrize("name", ["throttle_limits", "throttle_scope"])
def test_action_names_limits_only_where_the_class_has_the_attribute(name):
    class Without(ViewSet):
        @action(detail=False, **{name: "one"})
        def limited(self, request):
            return Response("ok")

    without = SimpleRouter()
    without.register("things", Without, basename="thing")
    with pytest.raises(TypeError, match=name):
        _ = without.urls
    setattr(Without, name, ())
    assert without.urls


@both
def test_limits_of_a_subclass_are_one_decision_wherever_it_is_put(middleware, client, settings):
    settings.MIDDLEWARE = middleware
    answers = [client.get("/function") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 429, 429]
    assert [answer["RateLimit"] for answer in answers] == [
        '"one";r=0;t=60, "two";r=8;t=60',
        *['"one";r=0;t=60, "two";r=8;t=60'] * 2,
    ]
    assert used() == {"one": 1, "two": 1}


def test_cost_is_a_number_or_a_function_and_0_is_free(client):
    assert [client.get("/cost").status_code for _ in range(3)] == [200, 200, 429]
    limiter.reset("ten", ME)
    costs = [client.get(f"/cost-of-request?cost={cost}").status_code for cost in (0, 7, 4, 0, 3, 1)]
    assert costs == [200, 200, 429, 200, 200, 429]


@both
@pytest.mark.parametrize("framework", [{}, HANDLER], ids=["default", "handler"])
def test_refusal_for_a_cost_that_never_fits_promises_no_time(framework, middleware, client, settings):
    settings.MIDDLEWARE, settings.REST_FRAMEWORK = middleware, framework
    answer = client.get("/cost-of-request?cost=11")
    assert (answer.status_code, answer.json()["violated-policies"]) == (429, ["ten"])
    assert "Retry-After" not in answer


@both
@pytest.mark.parametrize("framework", [{}, HANDLER], ids=["default", "handler"])
def test_refusal_by_another_throttle_is_left_alone(framework, middleware, client, settings):
    settings.MIDDLEWARE, settings.REST_FRAMEWORK = middleware, framework
    answer = client.get("/others")
    assert (answer.status_code, answer["Content-Type"]) == (429, "application/json")
    assert answer.json() == {"detail": "Request was throttled."}
    assert answer["RateLimit"] == '"ten";r=6;t=60'


@both
def test_request_is_charged_by_its_outcome(middleware, client, settings):
    settings.MIDDLEWARE = middleware
    assert client.get("/charged").status_code == 200
    assert used() == {"tokens": 7}
    assert [client.get("/charged?bad").status_code for _ in range(3)] == [400, 400, 429]
    assert used() == {"tokens": 21, "failures": 2}


@both
@pytest.mark.parametrize("framework", [{}, HANDLER], ids=["default", "handler"])
def test_browsable_api_shows_the_refusal_in_its_page(framework, middleware, client, settings):
    settings.MIDDLEWARE, settings.REST_FRAMEWORK = middleware, framework
    limiter.consume("ten", ME, cost=10)
    answer = client.get("/cost", headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert (answer["Cache-Control"], answer["RateLimit"]) == ("no-store", '"ten";r=0;t=60')
    assert answer["Content-Type"].startswith("text/html")
    assert "Accept" in answer["Vary"]
    assert "HTTP 429 Too Many Requests" in answer.text


@both
@pytest.mark.parametrize("framework", [{}, HANDLER], ids=["default", "handler"])
def test_projects_own_page_replaces_that_of_the_browsable_api(framework, middleware, client, settings):
    settings.MIDDLEWARE, settings.REST_FRAMEWORK = middleware, framework
    settings.RATELIMIT_REFUSAL = "tests.test_refusals.busy"
    limiter.consume("ten", ME, cost=10)
    answer = client.get("/cost", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.content, answer["Retry-After"]) == (503, b"busy", "7")
    assert answer.cookies["seen"].value == "1"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("middleware", "framework"), [([MIDDLEWARE], {}), ([], HANDLER)])
def test_what_a_refused_view_has_written_is_taken_back(middleware, framework, client, settings, monkeypatch):
    settings.MIDDLEWARE, settings.REST_FRAMEWORK = middleware, framework
    monkeypatch.setitem(connections["default"].settings_dict, "ATOMIC_REQUESTS", True)
    limiter.consume("one", ME)
    answer = client.get("/writing")
    assert (answer.status_code, answer.json()["violated-policies"]) == (429, ["one"])
    assert not Group.objects.exists()


def test_wrong_tokens_are_limited_by_the_middleware(client):
    # A throttle runs after authentication, which has failed by then.
    answers = [client.get("/private", headers={"Authorization": f"Token {n}"}) for n in range(50)]
    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 40
    assert not used()
    assert Counter.objects.get().count == 10
