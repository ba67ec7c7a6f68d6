"""The refusal is held against the rules of RFC 9457, sections 3 and 4, through the real client."""

import json
import re
import urllib.parse

import http_sf
import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import include, path

from ratelimit_app import limiter, responses
from ratelimit_app.decorators import ratelimit

ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket"]
#: The members that the RFC defines, with their types (section 3.1).
MEMBERS = {"type": str, "title": str, "status": int, "detail": str, "instance": str}


def view(request):
    return HttpResponse("ok")


def dear(request):
    return responses.refusal(limiter.consume("api", "global", cost=2))


pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]
urlpatterns = [
    path("api/", view),
    path("api/dear/", dear),
    path("api/view/", ratelimit("view")(view)),
    path("ratelimit/", include("ratelimit_app.urls")),
]


@pytest.fixture(autouse=True)
def _all_formats(settings):
    settings.RATELIMIT_HEADERS = ["ietf", "x_ratelimit"]


def limited(settings, **limits):
    settings.RATELIMIT_LIMITS = {
        name: {"path": "^/api/", "key": "global", **fields} for name, fields in limits.items()
    }


def last(times):
    return [Client().get("/api/") for _ in range(times)][-1]


@pytest.fixture(params=[*ALGORITHMS, "never fits", "two limits"])
def refused(request, settings):
    if request.param == "never fits":
        limited(settings, api={"rate": "1/min", "path": ""})
        return Client().get("/api/dear/")
    if request.param == "two limits":
        limited(settings, api={"rate": "1/min"}, other={"rate": "1/h"})
    else:
        limited(settings, api={"rate": "1/min", "algorithm": request.param})
    return last(2)


def test_document_keeps_the_rules_of_problem_details(refused):
    body = json.loads(refused.content)
    assert refused["Content-Type"] == "application/problem+json"
    assert body["status"] == refused.status_code == 429
    assert all(type(body[name]) is MEMBERS[name] for name in body.keys() & MEMBERS.keys())
    assert {"type", "title", "status", "detail"} <= body.keys()
    uri = urllib.parse.urlsplit(body["type"])
    assert uri.scheme == "https"
    assert uri.netloc
    assert body["title"] == "Quota exceeded"  # the same whatever happened (section 3.1.3)


def test_extensions_are_those_of_the_problem_type_and_a_name_that_any_format_can_have(refused):
    body = json.loads(refused.content)
    extensions = body.keys() - MEMBERS.keys()
    assert extensions <= {"violated-policies", "retry_after"}  # the former is the problem type's own
    # Section 3.2: three characters or more, a letter first; the problem type's own has a hyphen.
    assert all(re.fullmatch("[A-Za-z][A-Za-z0-9_-]{2,}", name) for name in extensions)
    assert all(isinstance(name, str) for name in body["violated-policies"])
    assert ("retry_after" in body) == ("Retry-After" in refused)
    assert str(body.get("retry_after", "")) == refused.get("Retry-After", "")


def test_violated_policies_are_names_in_the_fields(refused):
    violated = set(refused.json()["violated-policies"])
    for field in ("RateLimit-Policy", "RateLimit"):
        names = [name for name, _ in http_sf.parse(refused[field].encode(), tltype="list")]
        assert violated <= set(names)


def test_names_and_many_limits_come_back_from_the_fields(settings):
    names = ['a "b"', "back\\slash", "comma, semi;colon=", "(x)", *(f"limit-{i}" for i in range(20))]
    limited(settings, **{name: {"rate": f"{i}/min"} for i, name in enumerate(names, 2)})
    answer = last(1)
    policies = http_sf.parse(answer["RateLimit-Policy"].encode(), tltype="list")
    states = http_sf.parse(answer["RateLimit"].encode(), tltype="list")
    assert sorted(policies) == sorted((name, {"q": i, "w": 60}) for i, name in enumerate(names, 2))
    assert sorted(states) == sorted((name, {"r": i - 1, "t": 60}) for i, name in enumerate(names, 2))
    assert answer["X-RateLimit-Limit"] == "2"


def test_shadow_limit_is_shown_nowhere(settings):
    shade = {"rate": "1/min", "mode": "shadow"}
    limited(settings, open={"rate": "2/min"}, shade=shade, darker=shade)
    answers = [*(Client().get("/api/") for _ in range(3)), Client().get("/ratelimit/status/")]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 200]
    assert [answer.get("X-RateLimit-Remaining") for answer in answers] == ["1", "0", "0", None]
    for answer in answers:
        told = answer.content.decode() + str(answer.headers)
        assert "shade" not in told
        assert "darker" not in told
    assert "open" in answers[-1].content.decode()


def test_limits_in_shadow_mode_alone_leave_no_fields(settings):
    limited(settings, shade={"rate": "1/min", "mode": "shadow"})
    answer = last(2)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if "RateLimit" in name]


def test_refusal_waits_for_a_limit_that_has_let_the_same_request_through(settings, clock):
    limited(settings, day={"rate": "2/day"}, view={"rate": "1/min", "path": ""})
    answer = [Client().get("/api/view/") for _ in range(2)][-1]
    states = dict(http_sf.parse(answer["RateLimit"].encode(), tltype="list"))
    assert states == {"day": {"r": 0, "t": 43_200}, "view": {"r": 0, "t": 60}}
    assert (answer["Retry-After"], answer.json()["violated-policies"]) == ("43200", ["view"])
    clock.advance(43_200)
    assert Client().get("/api/view/").status_code == 200
