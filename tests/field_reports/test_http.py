"""Reports H: scripts of other origins, preflights and HEAD, and the status view."""

import re

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from model_bakery import baker

from ratelimit_app.models import Counter
from tests.field_reports.asking import ENTRIES, ask, make_limit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

STATUS = "/ratelimit/status/"
PREFLIGHT = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}


def preflight(entry):
    return Client().options(entry, headers=PREFLIGHT)


CORS = "corsheaders.middleware.CorsMiddleware"

#: As the README has it.
EXPOSED = [
    *("Retry-After", "RateLimit", "RateLimit-Policy"),
    *("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
]


@pytest.fixture
def script(settings):
    """Ask as a script of another origin does, with django-cors-headers above the limiter or below it."""
    settings.CORS_ALLOWED_ORIGINS = [PREFLIGHT["Origin"]]
    settings.CORS_EXPOSE_HEADERS = EXPOSED
    settings.RATELIMIT_HEADERS = ["ietf", "x_ratelimit"]
    others = list(settings.MIDDLEWARE)

    def ask_script(entry, *, above=True, method="get", **headers):
        settings.MIDDLEWARE = [CORS, *others] if above else [*others, CORS]
        return getattr(Client(), method)(entry, headers={"Origin": PREFLIGHT["Origin"], **headers})

    return ask_script


def readable(response):
    """Return the fields that a browser shows a script of the origin that was allowed."""
    if response.get("Access-Control-Allow-Origin") != PREFLIGHT["Origin"]:
        return set()
    return set(response["Access-Control-Expose-Headers"].split(", ")) & set(response.headers)


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("entry", ENTRIES)
def test_h02_script_of_another_origin_reads_the_refusal(clock, script, entry, above):
    """It sees a 429, when to try again and where it stands, and no network error."""
    make_limit("2/min")
    answers = [script(entry, above=above) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [readable(answer) for answer in answers] == [{*EXPOSED} - {"Retry-After"}] * 2 + [{*EXPOSED}]
    assert answers[2].json()["retry_after"] == 60


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize("entry", ENTRIES)
def test_h02_preflight_that_is_answered_for_the_view_is_not_counted(clock, script, entry, above):
    """What a browser asks first is free before and after the quota is used up."""
    make_limit("1/min")

    def preflights():
        asked = [
            script(entry, above=above, method="options", **{"Access-Control-Request-Method": "GET"})
            for _ in range(3)
        ]
        return {(answer.status_code, answer.get("Access-Control-Allow-Origin")) for answer in asked}

    assert preflights() == {(200, PREFLIGHT["Origin"])}
    assert not Counter.objects.exists()
    assert [script(entry, above=above).status_code for _ in range(2)] == [200, 429]
    assert preflights() == {(200, PREFLIGHT["Origin"])}


@pytest.mark.parametrize(("above", "reports"), [(True, 0), (False, 1)])
def test_h02_order_that_django_cors_headers_warns_of_is_reported_by_a_check(script, above, reports):
    """It wants to be above all that answers requests, though this limiter waits until it has seen them."""
    script("/plain", above=above)
    assert [message.id for message in run_checks()].count("ratelimit_app.W004") == reports


@pytest.mark.parametrize("entry", ENTRIES)
def test_h03_preflight_is_neither_counted_nor_refused(clock, entry):
    """A browser's question takes no units, and its refusal hides no answer."""
    make_limit("2/min")
    assert [preflight(entry).status_code for _ in range(5)] == [200] * 5
    assert not Counter.objects.exists()
    assert ask(entry, 3) == [200, 200, 429]
    assert preflight(entry).status_code == 200
    assert Counter.objects.get().count == 2


@pytest.mark.parametrize("entry", ENTRIES)
def test_h03_preflight_that_a_limit_names_is_counted(clock, entry):
    """Who wants OPTIONS to count says so on the limit."""
    make_limit("2/min", methods="GET, OPTIONS")
    assert [preflight(entry).status_code for _ in range(3)] == [200, 200, 429]
    assert ask(entry, 1) == [429]


@pytest.mark.parametrize("entry", ENTRIES)
def test_h03_head_counts_as_get(clock, entry):
    """HEAD is no free GET, and has no counter of its own."""
    make_limit("2/min")
    client = Client()
    asked = [client.head, client.get, client.head]
    assert [method(entry).status_code for method in asked] == [200, 200, 429]
    assert Counter.objects.get().count == 2


@pytest.mark.parametrize("entry", ENTRIES)
def test_h03_limit_for_get_counts_head(clock, entry):
    """A limit that names GET is not passed by asking with HEAD."""
    make_limit("2/min", methods="GET")
    assert [Client().head(entry).status_code for _ in range(3)] == [200, 200, 429]


@pytest.fixture
def owner():
    """A logged-in client who has used 2 of 5 units, of a limit for each user."""
    make_limit("5/min", key="user")
    client = log_in()
    assert ask("/decorated", 2, client) == [200, 200]
    return client


def log_in():
    client = Client()
    client.force_login(baker.make(User))
    return client


def figures(client):
    response = client.get(STATUS)
    assert (response.status_code, response["Cache-Control"]) == (200, "no-store")
    [shown] = response.json()["limits"]
    return shown["quota"], shown["used"], shown["remaining"], shown["reset_after"]


def test_h05_status_costs_nothing_and_writes_nothing(clock, owner):
    """Looking takes no unit, makes no row and changes none, whoever looks and however often."""
    before = list(Counter.objects.values())
    lookers = [owner, log_in(), Client()]
    with (
        CaptureQueriesContext(connections["default"]) as asked,
        CaptureQueriesContext(connections["ratelimit"]) as counted,
    ):
        shown = [[figures(client) for client in lookers] for _ in range(50)]
    assert shown == [[(5, 2, 3, 60.0), (5, 0, 5, 0.0), (5, 0, 5, 0.0)]] * 50
    assert list(Counter.objects.values()) == before
    statements = [query["sql"] for query in [*asked.captured_queries, *counted.captured_queries]]
    assert counted.captured_queries
    assert [sql for sql in statements if not re.match(r"\s*SELECT", sql)] == []


def test_h05_status_of_an_exhausted_limit_shows_the_reset(clock, owner):
    """Who is refused everywhere else still sees when it ends."""
    assert ask("/decorated", 4, owner) == [200] * 3 + [429]
    clock.advance(20)
    assert figures(owner) == (5, 5, 0, 40.0)


@pytest.mark.parametrize("key", ["user:{}", "ip:127.0.0.1", "global"])
def test_h05_status_shows_nobody_else_the_figures(clock, owner, key):
    """Asking for another key is for staff alone."""
    key = key.format(User.objects.get().pk)
    assert [client.get(STATUS, {"key": key}).status_code for client in (log_in(), Client())] == [403, 403]


def test_h05_status_is_met_by_no_limit(clock):
    """A limit on every path does not throttle away the view that shows it."""
    make_limit("1/min", path=".*")
    assert ask(STATUS, 3) == [200] * 3
    assert not Counter.objects.exists()
