import dataclasses
import json

import http_sf
import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from ratelimit_app import responses
from ratelimit_app.decision import Decision, combine
from ratelimit_app.policy import Policy

SECRET = "user:42-secret"


def decision(name="login", *, rate="5/min", allowed=False, wait=12.5, remaining=0, shadow=False):
    return Decision(
        allowed=allowed,
        limit=name,
        key=SECRET,
        cost=1,
        quota=5,
        remaining=remaining,
        reset_after=47.5,
        more_after=wait,
        retry_after=0.0 if allowed else wait,
        policy=Policy.parse(rate, name=name),
        shadow=shadow,
        over_quota=not allowed,
    )


def parsed(response, field):
    return http_sf.parse(response[field].encode(), tltype="list")


def test_refusal_is_problem_details_in_full():
    response = responses.refusal(decision())
    assert response.status_code == 429
    assert json.loads(response.content) == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "Too many requests. Try again in 13 seconds.",
        "violated-policies": ["login"],
        "retry_after": 13,
    }
    assert dict(response.items()) == {
        "Content-Type": "application/problem+json",
        "Cache-Control": "no-store",
        "Retry-After": "13",
        "RateLimit-Policy": '"login";q=5;w=60',
        "RateLimit": '"login";r=0;t=13',
    }


@pytest.mark.parametrize(
    ("cost", "detail"),
    [
        (5, "Too many requests. Trying again does not help."),
        (6, "This request costs more than the whole quota: trying again does not help."),
    ],
)
def test_refusal_for_ever_promises_no_time(cost, detail):
    response = responses.refusal(dataclasses.replace(decision(wait=None), cost=cost))
    body = json.loads(response.content)
    assert "Retry-After" not in response
    assert "retry_after" not in body
    assert body["detail"] == detail


@pytest.mark.parametrize(
    ("wait", "said"),
    [(0.000001, "1 second."), (1.0, "1 second."), (1.000001, "2 seconds."), (59.999, "60 seconds.")],
)
def test_refusal_rounds_the_wait_up(wait, said):
    response = responses.refusal(decision(wait=wait))
    assert json.loads(response.content)["detail"].endswith(f"Try again in {said}")
    assert response["Retry-After"] == said.split()[0]


def test_refusal_of_several_names_those_that_refuse_and_the_longest_wait():
    parts = [decision("a", wait=1.0), decision("b", allowed=True, remaining=3), decision("c", wait=9.0)]
    response = responses.refusal(combine(parts))
    body = json.loads(response.content)
    assert (body["violated-policies"], body["retry_after"]) == (["a", "c"], 9)
    assert parsed(response, "RateLimit") == [
        ("a", {"r": 0, "t": 1}),
        ("b", {"r": 3, "t": 13}),
        ("c", {"r": 0, "t": 9}),
    ]
    assert parsed(response, "RateLimit-Policy") == [(name, {"q": 5, "w": 60}) for name in "abc"]


def test_refusal_says_whose_quota_nowhere():
    response = responses.refusal(combine([decision("a"), decision("b")]))
    assert SECRET not in response.content.decode() + str(response.headers)


def test_fields_leave_out_shadows_and_what_has_no_policy():
    response = HttpResponse()
    responses.add_fields(
        response,
        [
            decision("a", allowed=True, remaining=2),
            decision("b", shadow=True),
            Decision(True, "nosuch", "k", 1),
        ],
    )
    assert parsed(response, "RateLimit") == [("a", {"r": 2, "t": 13})]
    assert parsed(response, "RateLimit-Policy") == [("a", {"q": 5, "w": 60})]


@pytest.mark.parametrize("shown", [[], [decision(shadow=True)], [Decision(True, "nosuch", "k", 1)]])
def test_fields_of_nothing_are_none(shown):
    response = HttpResponse()
    responses.add_fields(response, shown)
    assert "RateLimit" not in response
    assert "RateLimit-Policy" not in response


@pytest.mark.parametrize(
    ("formats", "fields"), [([], 0), (["ietf"], 2), (["x_ratelimit"], 3), (["ietf", "x_ratelimit"], 5)]
)
def test_fields_are_in_the_formats_of_the_setting(formats, fields, settings):
    settings.RATELIMIT_HEADERS = formats
    assert len([name for name, _ in responses.refusal(decision()).items() if "RateLimit" in name]) == fields


def test_name_with_quotes_is_parsed_back():
    response = responses.refusal(decision('a "b" \\c'))
    assert parsed(response, "RateLimit") == [('a "b" \\c', {"r": 0, "t": 13})]


def test_response_from_elsewhere_becomes_the_refusal_and_keeps_its_other_fields():
    response = HttpResponse("x", status=429, headers={"Vary": "Cookie", "X-Own": "1", "Retry-After": "7"})
    response.set_cookie("a", "b")
    responses.turn_into_refusal(response, decision(), RequestFactory().get("/"))
    refused = responses.refusal(decision())
    assert (response.content, response.status_code) == (refused.content, 429)
    assert dict(response.items()) == {"Vary": "Cookie, Accept", "X-Own": "1", **dict(refused.items())}
    assert response.cookies["a"].value == "b"


@pytest.mark.parametrize("field", ["Content-Length", "Content-Encoding", "ETag"])
def test_response_from_elsewhere_keeps_nothing_that_describes_its_body(field):
    response = HttpResponse("x", status=429, headers={field: "1"})
    responses.turn_into_refusal(response, decision(), RequestFactory().get("/"))
    assert response.get(field) in (None, str(len(response.content)))
