import pytest
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.core.checks import run_checks
from model_bakery import baker

from ratelimit_app.checks.callers import check_callers_of_rows
from ratelimit_app.models import Limit
from tests.outages import without_table

pytestmark = pytest.mark.django_db

ACCOUNTS = "django.contrib.auth.middleware.AuthenticationMiddleware"
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
RATELIMIT = "ratelimit_app.middleware.RateLimitMiddleware"


class OwnAuthentication(AuthenticationMiddleware):
    """One that a project has made of Django's."""


def plain_middleware(get_response):
    return get_response


#: The key of a limit, the middleware there is, the one that is missed.
TABLE = [
    ("user", [], ACCOUNTS),
    ("user", [RATELIMIT, SESSIONS], ACCOUNTS),
    ("user_or_ip", [], ACCOUNTS),
    ("ip + user", [], ACCOUNTS),
    ("session", [], SESSIONS),
    ("session", [ACCOUNTS], SESSIONS),
    ("user", [f"{__name__}.plain_middleware", "no.such.middleware"], ACCOUNTS),
    ("user", [SESSIONS, ACCOUNTS, RATELIMIT], None),
    ("user", [RATELIMIT, SESSIONS, ACCOUNTS], None),
    ("user", [f"{__name__}.OwnAuthentication"], None),
    ("session", [SESSIONS], None),
    ("ip", [], None),
    ("global", [], None),
    ("header:user", [], None),
    ("tests.field_reports.views.path_key", [], None),
]
table = pytest.mark.parametrize(("key", "middleware", "missed"), TABLE)


@pytest.fixture(autouse=True)
def no_limits(settings):
    settings.RATELIMIT_LIMITS = {}


def reported(messages):
    """Return of what limit and what middleware the messages speak."""
    found = [message for message in messages if message.id == "ratelimit_app.W005"]
    assert all(" counts by " in message.msg for message in found)
    return [(message.msg.split("'")[1], message.msg.split(" and ")[1].split()[0]) for message in found]


@table
def test_limit_in_code_by_what_no_middleware_tells_is_reported(key, middleware, missed, settings):
    settings.MIDDLEWARE = middleware
    settings.RATELIMIT_LIMITS = {"case": {"rate": "5/min", "key": key, "path": "^/"}}
    assert reported(run_checks()) == ([("case", missed)] if missed else [])


@table
def test_row_by_what_no_middleware_tells_is_reported_where_rows_may_be_read(
    key, middleware, missed, settings
):
    settings.MIDDLEWARE = middleware
    baker.make(Limit, name="case", rate="5/min", key=key, path="^/")
    assert reported(check_callers_of_rows(None, databases=["default"])) == (
        [("case", missed)] if missed else []
    )
    assert reported(run_checks()) == []


@pytest.mark.parametrize(("installed", "reports"), [(True, 0), (False, 1)])
def test_account_that_a_throttle_may_tell_of_is_not_missed(installed, reports, settings):
    settings.MIDDLEWARE = []
    settings.RATELIMIT_LIMITS = {"case": {"rate": "5/min", "key": "user"}}
    if not installed:
        settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "rest_framework"]
    assert reported(run_checks()) == [("case", ACCOUNTS)] * reports


def test_session_of_a_limit_without_a_path_is_missed(settings):
    settings.MIDDLEWARE = []
    settings.RATELIMIT_LIMITS = {"case": {"rate": "5/min", "key": "session"}}
    assert reported(run_checks()) == [("case", SESSIONS)]


@pytest.mark.parametrize("spec", [None, {"rate": "5/min", "key": "user", "path": ".", "mode": "off"}])
def test_limit_that_is_off_is_not_reported(spec, settings):
    settings.MIDDLEWARE = []
    settings.RATELIMIT_LIMITS = {"case": spec}
    assert reported(run_checks()) == []


@pytest.mark.parametrize(
    "unusable", [None, 5, ["user"], {"case": 5}, {"case": {"key": 5}}, {"case": {"nosuch": "user"}}]
)
def test_setting_that_is_unusable_is_left_to_its_own_check(unusable, settings):
    settings.MIDDLEWARE = []
    settings.RATELIMIT_LIMITS = unusable
    messages = run_checks()
    assert reported(messages) == []
    assert "ratelimit_app.E004" in [message.id for message in messages]


@pytest.mark.django_db(transaction=True)
def test_rows_that_cannot_be_read_are_not_reported(settings):
    settings.MIDDLEWARE = []
    with without_table("default", "ratelimit_app_limit"):
        assert check_callers_of_rows(None, databases=["default"]) == []


def test_database_is_not_asked_where_it_may_not_be(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert check_callers_of_rows(None, databases=None) == []
