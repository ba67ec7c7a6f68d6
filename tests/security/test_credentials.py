"""A credential that a limit counts by is nowhere to be read: in no row, no log and no answer."""

import json
import logging

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from rest_framework.response import Response
from rest_framework.views import APIView

from project.urls import urlpatterns as of_the_project
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.throttling import RateLimitThrottle
from tests.outages import outage

SECRET = "s3cret-of-the-caller"
ADDRESS = "203.0.113.77"

#: By what is counted, and what of it is stored.
WAYS = {
    "session": ":session:",
    "token": ":token:",
    "header:X-Api-Key": ":header:x-api-key:",
    "field:password": ":field:password:",
    "ip + token + session": ":#",  # too long to be stored as it is
}
ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "concurrency"]


def plain(request):
    return HttpResponse("ok")


class Throttled(APIView):
    authentication_classes = ()
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "case"

    def post(self, request):
        return Response("ok")


urlpatterns = [
    path("plain", plain),
    path("decorated", ratelimit("case")(plain)),
    path("throttled", Throttled.as_view()),
    *of_the_project,
]
ENTRIES = ["/plain", "/decorated", "/throttled"]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture
def session():
    return Session.objects.create(
        session_key="a" * 31 + "9",
        session_data=Session.get_session_store_class()().encode({"a": 1}),
        expire_date="2100-01-01T00:00Z",
    ).session_key


def post(entry, session, **headers):
    client = Client()
    client.cookies["sessionid"] = session
    sent = {"Authorization": f"Token {SECRET}", "X-Api-Key": SECRET, **headers}
    body = json.dumps({"password": SECRET})
    return client.post(entry, body, "application/json", headers=sent, REMOTE_ADDR=ADDRESS)


def everything_in(answer):
    return repr(list(answer.items())) + answer.content.decode()


@pytest.fixture
def rows():
    """Return all that the tables of the counters hold."""
    return lambda: repr([*Counter.objects.values_list(), *LoggedCall.objects.values_list()])


def logged(caplog):
    ours = [record for record in caplog.records if record.name.startswith("ratelimit_app")]
    return "".join(logging.Formatter().format(record) for record in ours)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("key", WAYS)
def test_credential_is_in_no_row_log_or_answer(key, algorithm, entry, session, rows, caplog, settings, clock):
    caplog.set_level("DEBUG")
    settings.RATELIMIT_HEADERS = ["ietf", "x_ratelimit"]
    limit = {"rate": "1/min", "key": key, "algorithm": algorithm, "cost": 1, "path": "^/plain"}
    settings.RATELIMIT_LIMITS = {"case": limit}
    answers = [post(entry, session), post(entry, session)]
    if algorithm != "concurrency":  # which has given back what the first one held
        assert [answer.status_code for answer in answers] == [200, 429]
    client = Client()
    client.force_login(User.objects.create_superuser("admin"))
    status = post("/ratelimit/status/", session)
    page = client.get("/admin/ratelimit_app/limit/counters/")
    assert WAYS[key] in rows()
    seen = [rows(), logged(caplog), everything_in(page), *map(everything_in, [*answers, status])]
    for text in seen:
        assert SECRET not in text
        assert session not in text
    for answer in answers:
        assert ADDRESS not in everything_in(answer)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
@pytest.mark.parametrize("key", WAYS)
def test_credential_is_in_no_log_of_an_outage(key, kind, session, caplog, settings):
    settings.RATELIMIT_LIMITS = {"case": {"rate": "1/min", "key": key, "path": "^/plain"}}
    with outage(kind):
        answers = [post(entry, session) for entry in ENTRIES]
    report = logged(caplog)
    assert "'ratelimit'" in report
    for text in [report, *map(everything_in, answers)]:
        assert SECRET not in text
        assert session not in text
