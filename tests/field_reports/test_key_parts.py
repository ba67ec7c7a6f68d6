"""Reports K02 and K05: keys by a part of the request that is hostile, or not there, or in the body."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from ratelimit_app.models import Counter
from tests.field_reports.asking import ENTRIES, ask, make_limit
from tests.field_reports.test_keys import HOSTILE, assert_stored_apart_and_bounded

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

BODY_VIEWS = ("/body/form", "/body/stream", "/body/drf")


def post(path, body, **extra):
    return Client().post(path, body, **extra)


def post_json(path, body):
    return post(path, json.dumps(body), content_type="application/json")


def test_k02_hostile_field_is_limited_for_itself(clock):
    """A user name decides neither about the server's answer nor about another user's count."""
    make_limit("5/min", path="^/body/", key="field:username")
    for value in HOSTILE.values():
        answers = [post_json("/body/drf", {"username": value}).status_code for _ in range(6)]
        assert answers == [200] * 5 + [429]
    assert_stored_apart_and_bounded()


def test_k02_hostile_parameter_is_limited_for_itself(clock):
    """A parameter of the URL may hold whatever an address can."""
    make_limit("5/min", path="^/tenants/", key="path:tenant")
    for value in ("a" * 300 + "1", "a" * 300 + "2", "bob%00", "bob", "%F0%9F%92%A9"):
        assert ask(f"/tenants/{value}/", 6) == [200] * 5 + [429]
    assert Counter.objects.count() == 5


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "key", ["header:X-Api-Key", "user", "session", "token", "field:username", "path:tenant", "ip + token"]
)
def test_k05_missing_part_is_the_address_of_each_client(clock, entry, key):
    """No two clients share a count because neither has what the limit counts by."""
    make_limit("1/min", key=key)
    for n in range(10):
        assert ask(entry, 2, REMOTE_ADDR=f"203.0.113.{n}") == [200, 429]


FORMS = {
    "form": lambda name: {"data": {"username": name}},
    "json": lambda name: {"data": json.dumps({"username": name}), "content_type": "application/json"},
    "upload": lambda name: {"data": {"username": name, "file": SimpleUploadedFile("a.txt", b"content")}},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("view", BODY_VIEWS)
def test_k05_view_reads_the_body_that_the_limit_has_read(clock, view, form):
    """Each name has its own count, and the view its data, however it reads them."""
    make_limit("1/min", path="^/body/", key="field:username")
    for name in ("alice", "bob"):
        first, second = (Client().post(view, **FORMS[form](name)) for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 429)
        if view != "/body/form" or form != "json":  # a form is what that view reads
            assert name in first.content.decode()


def test_k05_field_counts_by_name_wherever_from_and_with_the_address_by_both(clock):
    """The two limits that a log-in form wants."""
    make_limit("2/min", "by-name", "^/body/", key="field:username")
    make_limit("1/min", "by-both", "^/body/", key="ip + field:username")

    def ask_as(name, remote):
        return post("/body/form", {"username": name}, REMOTE_ADDR=remote).status_code

    assert [ask_as("bob", f"203.0.113.{n}") for n in (1, 1, 2, 3)] == [200, 429, 200, 429]
    assert ask_as("alice", "203.0.113.1") == 200


@pytest.mark.parametrize(
    "body", ["{", "[" * 100_000, '{"username": 1' + "0" * 10_000 + "}", '{"username": []}']
)
def test_k05_malformed_body_is_no_server_error_of_the_limit(clock, body):
    """What cannot be read is the view's to refuse, and the limit counts it."""
    make_limit("1/min", path="^/body/", key="field:username")
    answers = [post("/body/stream", body, content_type="application/json") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


@pytest.mark.parametrize("key", ["field:username", "path:tenant", "session", "token", "ip + field:a"])
def test_k05_status_view_has_none_of_the_parts_and_answers(clock, key):
    """A look at one's figures has neither a body nor the view's parameters."""
    make_limit("1/min", key=key)
    answer = Client().get("/ratelimit/status/")
    assert answer.status_code == 200
    assert [limit["remaining"] for limit in answer.json()["limits"]] == [1]
