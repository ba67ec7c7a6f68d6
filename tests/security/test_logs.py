"""What a visitor writes neither breaks a line of the log nor reaches the terminal that shows it."""

import logging

import pytest
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path

from ratelimit_app import charging, enforcement, keys, limiter
from ratelimit_app.decorators import ratelimit

HOSTILE = [
    "x\nERROR ratelimit_app: all limits are off",
    "x\r\nSet-Cookie: a=b",
    "x\x1b]0;title\x07\x1b[2J",
    "x\x00y",
    "x\x7f\x80\x9b",
    "x\u2028y\u2029z\x85",
    "x\u202ereversed",
    "x\ud800",
    "%s %d %(name)s {} ${jndi:ldap://x}",
    "x" * 100_000,
]


def by_address(text):
    keys.ip(RequestFactory().get("/", REMOTE_ADDR=text))


def by_forwarded_address(text):
    keys.ip(RequestFactory().get("/", headers={"X-Forwarded-For": text}))


def by_cost(text):
    enforcement.enforce(RequestFactory().get("/"), ["case"], lambda request: text)


def by_name_of_a_limit(text):
    limiter.consume(text, "k")


def by_name_of_a_charge(text):
    request = RequestFactory().get("/")
    enforcement.enforce(request, ["case"])
    charging.set_cost(request, text, 1)
    charging.settle(request, 200)


def by_session(text):
    request = RequestFactory().get("/")
    request.session = Failing(f"session-{text}")
    keys.session(request)


def by_account(text):
    request = RequestFactory().get("/")
    request.user = FailingAccount(text)
    keys.user(request)


class Failing(SessionBase):
    def load(self):
        raise OSError(f"cannot open the file of {self.session_key}")


class FailingAccount:
    def __init__(self, session_key):
        self.session_key = session_key

    @property
    def is_authenticated(self):
        raise OSError(f"cannot open the file of {self.session_key}")


WAYS = [
    by_address,
    by_forwarded_address,
    by_cost,
    by_name_of_a_limit,
    by_name_of_a_charge,
    by_session,
    by_account,
]


@pytest.mark.django_db
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("way", WAYS)
def test_what_a_visitor_writes_is_one_short_printable_line(way, text, caplog, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = int(way is by_forwarded_address)
    settings.RATELIMIT_LIMITS = {"case": "1000/min"}
    way(text)
    assert len(caplog.records) == 1
    line = logging.Formatter().format(caplog.records[0])
    assert line.isprintable()
    assert len(line) < 300


@ratelimit("case")
def view(request):
    return HttpResponse("ok")


urlpatterns = [path("case", view)]


@pytest.mark.django_db
@pytest.mark.urls(__name__)
def test_request_that_is_counted_or_refused_leaves_no_line_of_ours(caplog, settings, clock):
    caplog.set_level("DEBUG", logger="ratelimit_app")
    settings.RATELIMIT_LIMITS = {"case": {"rate": "1/min", "key": "header:X-Api-Key"}}
    sent = {"X-Api-Key": "x\nERROR", "User-Agent": "x\x1b[2J"}
    assert [Client().get("/case", headers=sent).status_code for _ in range(2)] == [200, 429]
    assert [record for record in caplog.records if record.name.startswith("ratelimit_app")] == []
