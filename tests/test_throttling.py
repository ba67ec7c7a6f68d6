import pytest
from django.contrib.auth.models import User
from django.urls import path
from model_bakery import baker
from rest_framework.authentication import BasicAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.views import APIView

from ratelimit_app import limiter
from ratelimit_app.models import Counter
from ratelimit_app.policy import Policy
from ratelimit_app.throttling import RateLimitThrottle

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

ME = "ip:127.0.0.1"


class Base(APIView):
    throttle_classes = (RateLimitThrottle,)

    def get(self, request):
        return Response("ok")


class OneLimit(Base):
    throttle_limits = "tight"


class Scoped(Base):
    throttle_scope = "tight"


class Listed(Base):
    throttle_limits = ("wide", "tight")


class Both(Base):
    throttle_scope = "wide"
    throttle_limits = ("tight", "wide")


class Twice(Base):
    throttle_classes = (RateLimitThrottle, RateLimitThrottle)
    throttle_scope = "tight"


class Private(Base):
    authentication_classes = (BasicAuthentication,)
    permission_classes = (IsAuthenticated,)
    throttle_scope = "account"


urlpatterns = [
    path("one-limit", OneLimit.as_view()),
    path("scoped", Scoped.as_view()),
    path("listed", Listed.as_view()),
    path("both", Both.as_view()),
    path("twice", Twice.as_view()),
    path("private", Private.as_view()),
    path("free", Base.as_view()),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        "tight": "2/min",
        "wide": "5/min",
        "account": {"rate": "2/min", "key": "user"},
    }


def counts():
    return {row.key.partition("@")[0]: row.count for row in Counter.objects.all()}


def statuses(client, where, times=3, **extra):
    return [client.get(where, **extra).status_code for _ in range(times)]


def test_scope_is_the_limit(client):
    answers = [client.get("/scoped") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["RateLimit"] for answer in answers] == [f'"tight";r={r};t=60' for r in (1, 0, 0)]
    assert answers[2]["Content-Type"] == "application/problem+json"
    assert answers[2]["Retry-After"] == "60"
    assert answers[2].json()["violated-policies"] == ["tight"]
    assert counts() == {"tight": 2}


def test_limits_listed_are_one_decision(client):
    assert statuses(client, "/listed") == [200, 200, 429]
    assert counts() == {"wide": 2, "tight": 2}


def test_scope_and_limits_listed_are_one_decision_and_none_counts_twice(client):
    assert statuses(client, "/both") == [200, 200, 429]
    assert counts() == {"wide": 2, "tight": 2}


def test_class_listed_twice_counts_once(client):
    assert statuses(client, "/twice") == [200, 200, 429]
    assert counts() == {"tight": 2}


def test_view_without_a_name_is_free(client):
    assert statuses(client, "/free") == [200] * 3
    assert not Counter.objects.exists()


def test_options_are_free_and_head_counts_as_get(client):
    assert [client.options("/scoped").status_code for _ in range(5)] == [200] * 5
    answers = [client.head("/scoped"), client.get("/scoped"), client.head("/scoped")]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert client.options("/scoped").status_code == 200


def test_refusal_without_the_middleware_still_says_when(client, settings, clock):
    settings.MIDDLEWARE = []
    clock.advance(12.5)
    answer = [client.get("/scoped") for _ in range(3)][-1]
    assert (answer.status_code, answer["Retry-After"]) == (429, "48")


def test_refusal_without_the_middleware_says_the_longest_wait(client, settings):
    settings.RATELIMIT_LIMITS = {"wide": "1/h", "tight": "1/min"}
    settings.MIDDLEWARE = []
    limiter.consume_all({"wide": ME, "tight": ME})
    assert client.get("/listed")["Retry-After"] == "3600"


@pytest.mark.parametrize("accept", ["application/json", "*/*"])
def test_refusal_is_the_problem_document(accept, client):
    limiter.consume("tight", ME, cost=2)
    answer = client.get("/scoped", headers={"Accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (429, "application/problem+json")
    assert answer.json()["status"] == 429


def test_browsable_api_shows_the_refusal(client):
    limiter.consume("tight", ME, cost=2)
    answer = client.get("/scoped", headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert "429 Too Many Requests" in answer.content.decode()


def test_user_is_the_one_that_the_framework_has_found():
    client, remotes = APIClient(), ["203.0.113.1", "203.0.113.2", "203.0.113.3"]
    client.force_authenticate(baker.make(User))
    answers = [client.get("/private", REMOTE_ADDR=remote).status_code for remote in remotes]
    assert answers == [200, 200, 429]


def test_caller_who_may_not_is_not_counted(client):
    assert statuses(client, "/private") == [401] * 3
    assert not Counter.objects.exists()


def test_wait_asked_twice_answers_alike():
    limiter.consume("tight", ME, cost=2)
    throttle, view = RateLimitThrottle(), Scoped()
    request = view.initialize_request(APIRequestFactory().get("/scoped"))
    assert throttle.wait() is None
    assert not throttle.allow_request(request, view)
    assert (throttle.wait(), throttle.wait()) == (60, 60)


def test_wait_is_none_when_it_never_helps():
    throttle = RateLimitThrottle()
    throttle._decision = limiter.consume(Policy.parse("2/min"), ME, cost=3)
    assert throttle.wait() is None


def test_limits_that_are_one_name_are_that_limit(settings):
    settings.RATELIMIT_LIMITS = {"tight": "2/min"}
    assert [APIClient().get("/one-limit").status_code for _ in range(3)] == [200, 200, 429]
