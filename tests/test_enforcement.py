"""One request's limits as one decision, whichever entry points it passes."""

import pytest
from django.db import connections
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import enforcement, limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter
from ratelimit_app.throttling import RateLimitThrottle

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

ME = "ip:127.0.0.1"


def plain(request):
    return HttpResponse("plain")


class Throttled(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "door"

    def get(self, request):
        return Response("throttled")


@api_view(["GET"])
@ratelimit("door")
def wrapped(request):
    return Response("wrapped")


urlpatterns = [
    path("by-middleware/wrapped", wrapped),
    path("by-middleware", plain),
    path("by-decorator", ratelimit("door")(plain)),
    path("by-throttle", Throttled.as_view()),
    path("all-three", ratelimit("door", "own")(Throttled.as_view())),
]
ENTRIES = ["/by-middleware", "/by-decorator", "/by-throttle"]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        "door": {"rate": "4/min", "path": "^/(by-middleware|all-three)"},
        "own": "9/min",
        "posts": {"rate": "9/min", "methods": "POST"},
        "gets": {"rate": "9/min", "methods": "GET"},
        "options": {"rate": "9/min", "methods": "OPTIONS"},
        "out": None,
        "nobody": {"rate": "9/min", "key": f"{__name__}.nobody"},
    }


def nobody(request):
    return None


def counts():
    return {row.key.partition("@")[0]: row.count for row in Counter.objects.all()}


def request(method="GET", where="/"):
    return RequestFactory().generic(method, where)


# Through the front door ---------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_counts_a_request_once(entry, client):
    answers = [client.get(entry) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]
    assert [answer["RateLimit"] for answer in answers] == [f'"door";r={r};t=60' for r in (3, 2, 1, 0, 0)]
    assert counts() == {"door": 4}


def test_limit_met_three_ways_counts_once_and_other_limits_too(client):
    answers = [client.get("/all-three") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]
    assert [answer["RateLimit"].partition(",")[0] for answer in answers] == [
        f'"door";r={r};t=60' for r in (3, 2, 1, 0, 0)
    ]
    assert counts() == {"door": 4, "own": 4}


def test_refusal_is_the_same_from_every_entry(client, clock):
    limiter.consume("door", ME, cost=4)
    clock.advance(12.5)
    answers = [client.get(entry) for entry in ENTRIES]
    assert {answer.status_code for answer in answers} == {429}
    assert len({answer.content for answer in answers}) == 1
    for field in ("Content-Type", "Retry-After", "Cache-Control", "RateLimit", "RateLimit-Policy"):
        assert len({answer[field] for answer in answers}) == 1, field
    assert answers[0]["Retry-After"] == "48"


@pytest.mark.parametrize("entry", [*ENTRIES, "/all-three"])
def test_refusal_says_no_false_length(entry, client, settings):
    settings.MIDDLEWARE = [
        "ratelimit_app.middleware.RateLimitMiddleware",
        "django.middleware.common.CommonMiddleware",
    ]
    limiter.consume("door", ME, cost=4)
    answer = client.get(entry)
    assert answer.status_code == 429
    assert answer.get("Content-Length") in (None, str(len(answer.content)))


@pytest.mark.parametrize("entry", ENTRIES)
def test_lowered_limit_says_the_rest_of_the_window(entry, client, settings, clock):
    limiter.consume("door", ME, cost=4)
    settings.RATELIMIT_LIMITS = {"door": {"rate": "2/min", "path": "^/by-middleware"}}
    clock.advance(5)
    answer = client.get(entry)
    assert (answer.status_code, answer["Retry-After"]) == (429, "55")
    assert answer["RateLimit"] == '"door";r=0;t=55'


# What applies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "applying"),
    [
        ("GET", {"own", "gets"}),
        ("HEAD", {"own", "gets"}),
        ("POST", {"own", "posts"}),
        ("DELETE", {"own"}),
        ("OPTIONS", {"options"}),
    ],
)
def test_limit_applies_to_its_methods_and_options_are_free(method, applying):
    enforcement.enforce(request(method), ["own", "posts", "gets", "options"])
    assert set(counts()) == applying


@pytest.mark.parametrize("names", [[], ["out"], ["nosuch"], ["nobody"], ["posts"]])
def test_no_limit_that_applies_is_no_decision(names):
    get = request()
    assert enforcement.enforce(get, names) is None
    assert enforcement.decisions(get) == []
    assert enforcement.refusing(get) is None


def test_everything_off_by_setting_is_no_decision_and_no_report(settings, caplog):
    settings.RATELIMIT_ENABLE = False
    get = request(where="/by-middleware")
    assert enforcement.enforce(get, ["door", "nosuch"]) is None
    assert caplog.records == []
    assert enforcement.enforce_matching(get) is None
    assert not Counter.objects.exists()


# One decision -------------------------------------------------------------------------------------


def test_limits_of_one_entry_are_all_or_nothing():
    limiter.consume("door", ME, cost=4)
    decision = enforcement.enforce(request(), ["own", "door"])
    assert (decision.allowed, decision.limit) == (False, "door")
    assert counts() == {"door": 4}


def test_limit_met_again_answers_as_before():
    get = request(where="/by-middleware")
    first = enforcement.enforce_matching(get)
    assert enforcement.enforce(get, ["door"]) == first
    assert enforcement.enforce(get, ["door", "door"]) == first
    assert counts() == {"door": 1}


def test_limit_met_again_with_another_is_one_decision_of_both():
    get = request()
    enforcement.enforce(get, ["door"])
    decision = enforcement.enforce(get, ["door", "own"])
    assert [part.limit for part in decision.decisions] == ["door", "own"]
    assert [part.limit for part in enforcement.decisions(get)] == ["door", "own"]
    assert counts() == {"door": 1, "own": 1}


def test_limit_met_alone_speaks_for_itself_alone():
    limiter.consume("door", ME, cost=4)
    get = request()
    assert not enforcement.enforce(get, ["door"]).allowed
    decision = enforcement.enforce(get, ["own"])
    assert (decision.allowed, decision.limit, decision.decisions) == (True, "own", ())


def test_limit_that_was_edited_meanwhile_is_not_counted_again(settings):
    get = request()
    enforcement.enforce(get, ["own"])
    settings.RATELIMIT_LIMITS = {"own": "5/min"}
    enforcement.enforce(get, ["own"])
    assert counts() == {"own": 1}


def test_key_that_changed_meanwhile_is_counted_as_another():
    get = request()
    for remote in ("203.0.113.1", "203.0.113.2"):
        get.META["REMOTE_ADDR"] = remote
        enforcement.enforce(get, ["own"])
    assert [part.key for part in enforcement.decisions(get)] == ["ip:203.0.113.1", "ip:203.0.113.2"]


def test_two_requests_are_counted_apart():
    for _ in range(2):
        enforcement.enforce(request(), ["own"])
    assert counts() == {"own": 2}


def test_refusing_is_the_decision_of_all_that_a_request_met():
    limiter.consume("door", ME, cost=4)
    get = request()
    enforcement.enforce(get, ["own"])
    assert enforcement.refusing(get) is None
    enforcement.enforce(get, ["door"])
    refused = enforcement.refusing(get)
    assert (refused.limit, [part.allowed for part in refused.decisions]) == ("door", [True, False])


def test_decorator_under_a_view_of_rest_framework_sees_the_same_request(client):
    answers = [client.get("/by-middleware/wrapped") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429]
    assert answers[0]["RateLimit"] == '"door";r=3;t=60'
    assert counts() == {"door": 4}


def test_switched_off_asks_the_database_nothing(client, settings, django_assert_num_queries):
    settings.RATELIMIT_ENABLE = False
    counters = connections["ratelimit"]
    with django_assert_num_queries(0), django_assert_num_queries(0, connection=counters):
        assert [client.get(entry).status_code for entry in ENTRIES] == [200, 200, 200]
