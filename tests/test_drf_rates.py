"""The rates of REST framework's own throttles are limits in code."""

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.test import Client
from django.urls import include, path
from model_bakery import baker
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle, ScopedRateThrottle, UserRateThrottle
from rest_framework.views import APIView

from ratelimit_app import limiter
from ratelimit_app.checks.rates import check_drf_rates
from ratelimit_app.checks.views import check_names
from ratelimit_app.models import Limit
from ratelimit_app.throttling import RateLimitThrottle

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

ME = "ip:127.0.0.1"


class Scoped(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "uploads"

    def get(self, request):
        return Response("ok")


class Both(RateLimitThrottle):
    limits = ("anon", "user")


class Counted(Scoped):
    throttle_classes = (Both,)
    throttle_scope = None


urlpatterns = [
    path("scoped", Scoped.as_view()),
    path("counted", Counted.as_view()),
    path("ratelimit/", include("ratelimit_app.urls")),
]


@pytest.fixture(autouse=True)
def rates(settings):
    settings.RATELIMIT_LIMITS = {}
    settings.REST_FRAMEWORK = {
        "DEFAULT_THROTTLE_RATES": {"uploads": "2/minute", "anon": "1/minute", "user": "3/minute"}
    }


def statuses(client, where, times=3, **extra):
    return [client.get(where, **extra).status_code for _ in range(times)]


@pytest.fixture
def user():
    client = Client()
    client.force_login(baker.make(User))
    return client


def test_scope_counts_by_its_rate_and_by_account_or_address(client, user):
    assert statuses(client, "/scoped") == [200, 200, 429]
    assert statuses(client, "/scoped", 1, REMOTE_ADDR="203.0.113.9") == [200]
    assert statuses(user, "/scoped", 1) == [200]
    assert [statuses(user, "/scoped", 1, REMOTE_ADDR=f"203.0.113.{n}") for n in range(2)] == [[200], [429]]


def test_anon_and_user_count_as_their_throttles_do(client, user):
    assert statuses(client, "/counted", 2) == [200, 429]
    assert statuses(user, "/counted", 4) == [200, 200, 200, 429]


@pytest.mark.parametrize("where", ["counted", "scoped"])
def test_answers_are_those_of_the_framework_s_own_throttles(where, client, user, settings, monkeypatch):
    ours = [statuses(who, f"/{where}", 5) for who in (client, user)]
    own = {"counted": (AnonRateThrottle, UserRateThrottle), "scoped": (ScopedRateThrottle,)}[where]
    for throttle in own:
        monkeypatch.setattr(throttle, "THROTTLE_RATES", settings.REST_FRAMEWORK["DEFAULT_THROTTLE_RATES"])
    monkeypatch.setattr({"counted": Counted, "scoped": Scoped}[where], "throttle_classes", own)
    assert [statuses(who, f"/{where}", 5) for who in (client, user)] == ours


@pytest.mark.parametrize(
    ("rate", "quota", "window"),
    [("5/s", 5, 1), ("5/sec", 5, 1), ("5/min", 5, 60), ("5/hour", 5, 3_600), ("5/day", 5, 86_400)],
)
def test_rate_is_read_whole(rate, quota, window, settings):
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"uploads": rate}}
    decision = limiter.peek("uploads", ME)
    assert (decision.quota, decision.policy.window) == (quota, window)


def test_rates_that_change_apply_at_once(settings):
    assert limiter.peek("uploads", ME).quota == 2
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"uploads": "7/min"}}
    assert limiter.peek("uploads", ME).quota == 7


def test_month_is_a_month_and_no_minute(settings):
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"uploads": "5/month"}}
    assert limiter.peek("uploads", ME).policy.window == "month"


def test_rate_that_is_none_limits_nothing_in_silence(client, settings, caplog):
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"uploads": None}}
    assert statuses(client, "/scoped") == [200] * 3
    assert not caplog.records


def test_entry_of_ratelimit_limits_wins(client, settings):
    settings.RATELIMIT_LIMITS = {"uploads": "1/min"}
    assert statuses(client, "/scoped", 2) == [200, 429]


def test_row_wins(client):
    baker.make(Limit, name="uploads", rate="1/min", key="ip")
    assert statuses(client, "/scoped", 2) == [200, 429]


@pytest.mark.parametrize("rate", ["garbage", "5/minutely", "5", "", 5, ["5/min"], "0/min"], ids=repr)
def test_rate_that_is_not_understood_is_reported_and_ignored(rate, client, settings, caplog):
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"uploads": rate, "user": "3/min"}}
    assert statuses(client, "/scoped") == [200] * 3
    assert "The limit 'uploads' is ignored" in caplog.text
    [error] = [found for found in run_checks() if found.id.startswith("ratelimit_app.")]
    assert error.id == "ratelimit_app.E004"
    assert error.msg.startswith("REST_FRAMEWORK['DEFAULT_THROTTLE_RATES']: 'uploads': ")


@pytest.mark.parametrize("framework", [None, 5, [], {}, {"DEFAULT_THROTTLE_RATES": None}], ids=repr)
def test_project_without_rates_has_no_such_limits(framework, settings):
    settings.REST_FRAMEWORK = framework
    assert not limiter.current_limits().by_name
    assert check_drf_rates(None) == []


def test_check_of_names_knows_them(settings):
    assert check_names(None, databases=["default"]) == []
    settings.REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"user": "3/min"}}
    found = check_names(None, databases=["default"])
    assert [warning.msg.split("'")[1] for warning in found] == ["uploads", "anon"]


def test_status_view_shows_them_to_whom_they_apply(client, user):
    client.get("/counted")
    shown = [who.get("/ratelimit/status/").json()["limits"] for who in (client, user)]
    assert [{limit["limit"]: limit["used"] for limit in limits} for limits in shown] == [
        {"uploads": 0, "anon": 1, "user": 1},
        {"uploads": 0, "user": 0},
    ]


@pytest.mark.urls("project.urls")
def test_list_in_the_admin_shows_them(admin_client):
    page = admin_client.get("/admin/ratelimit_app/limit/").text
    assert "uploads" in page
    assert "2/minute" in page
