import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.models import Counter
from tests.outages import outage

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

STATUS = "/ratelimit/status/"
ME = "ip:127.0.0.1"


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        "a": "5/min",
        "b": {"rate": "2/month", "key": "user", "cost": 2},
        "shade": {"rate": "1/min", "mode": "shadow"},
        "out": None,
        "nobody": {"rate": "1/min", "key": f"{__name__}.nobody"},
        "all": {"rate": "1/day", "path": "", "key": "global"},
    }


def nobody(request):
    return None


def login(**fields):
    client, user = Client(), baker.make(User, **fields)
    client.force_login(user)
    return client, user


def figures(client, where=STATUS, **extra):
    answer = client.get(where, **extra)
    assert answer.status_code == 200
    return {each.pop("limit"): each for each in answer.json()["limits"]}


def test_status_shows_the_callers_figures_of_every_limit(client, clock):
    limiter.consume("a", ME, cost=2)
    clock.advance(12.5)
    assert figures(client) == {
        "a": {
            "quota": 5,
            "window": 60,
            "used": 2,
            "remaining": 3,
            "reset_after": 47.5,
            "retry_after": 0.0,
            "more_after": 47.5,
        },
        "b": {
            "quota": 2,
            "window": "month",
            "used": 0,
            "remaining": 2,
            "reset_after": 0.0,
            "retry_after": 0.0,
            "more_after": None,
        },
        "all": {
            "quota": 1,
            "window": 86400,
            "used": 0,
            "remaining": 1,
            "reset_after": 0.0,
            "retry_after": 0.0,
            "more_after": None,
        },
    }


def test_status_of_what_is_used_up_says_when_to_come_back(client, clock):
    limiter.consume("a", ME, cost=5)
    clock.advance(45)
    shown = figures(client)["a"]
    assert (shown["remaining"], shown["reset_after"], shown["retry_after"]) == (0, 15.0, 15.0)


def test_status_asks_for_the_cost_of_the_limit(client):
    limiter.consume("b", ME, cost=1)
    assert figures(client)["b"]["retry_after"] > 0


def test_status_shows_only_the_callers_own():
    limiter.consume("a", "ip:203.0.113.1", cost=4)
    client, user = login()
    limiter.consume("b", f"user:{user.pk}")
    assert figures(client)["b"]["used"] == 2
    assert figures(Client())["b"]["used"] == 0
    assert figures(client, REMOTE_ADDR="203.0.113.1")["a"]["used"] == 4
    assert figures(client, REMOTE_ADDR="203.0.113.2")["a"]["used"] == 0


def test_status_says_no_key(client):
    limiter.consume("a", ME)
    assert "127.0.0.1" not in client.get(STATUS).text


def test_status_may_not_be_kept(client):
    assert client.get(STATUS)["Cache-Control"] == "no-store"


def test_status_of_another_key_is_for_staff_who_may_see_counters():
    limiter.consume("a", "ip:203.0.113.1", cost=4)
    client, user = login(is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_counter"))
    shown = figures(client, f"{STATUS}?key=ip:203.0.113.1")
    assert shown["a"]["used"] == 4
    assert "nobody" in shown
    assert client.get(f"{STATUS}?key=ip:203.0.113.1")["Cache-Control"] == "no-store"


def test_status_of_another_key_is_for_superusers():
    client, _ = login(is_staff=True, is_superuser=True)
    assert figures(client, f"{STATUS}?key=x")["a"]["used"] == 0


@pytest.mark.parametrize("key", ["", "x", "ip:127.0.0.1", "%00", "%F0%9F%98%80", "a" * 3000])
def test_status_of_another_key_is_refused_to_others(key):
    _, permitted = login(is_staff=False)
    permitted.user_permissions.add(Permission.objects.get(codename="view_counter"))
    permitted_client = Client()
    permitted_client.force_login(permitted)
    staff_client, _ = login(is_staff=True)
    user_client, _ = login()
    for client in (Client(), user_client, staff_client, permitted_client):
        answer = client.get(f"{STATUS}?key={key}")
        assert answer.status_code == 403
        assert "limits" not in answer.json()


@pytest.mark.parametrize("key", ["", "%00", "%F0%9F%98%80", "a" * 3000, "%"])
def test_status_of_an_odd_key_is_one_that_was_never_used(key):
    client, _ = login(is_staff=True, is_superuser=True)
    assert figures(client, f"{STATUS}?key={key}")["a"]["remaining"] == 5


def test_status_writes_nothing_and_takes_one_query_of_the_counters(client):
    limiter.consume("a", ME)
    client.get(STATUS)
    with (
        CaptureQueriesContext(connections["ratelimit"]) as counters,
        CaptureQueriesContext(connections["default"]) as own,
    ):
        for _ in range(10):
            assert figures(client)["a"]["remaining"] == 4
    sent = [query["sql"].strip() for query in [*counters, *own]]
    assert all(sql.startswith("SELECT") for sql in sent)
    assert len(counters) == 10
    assert Counter.objects.count() == 1


def test_status_is_never_refused(client, settings):
    settings.RATELIMIT_EXEMPT = []
    settings.RATELIMIT_LIMITS = {"all": {"rate": "1/day", "path": ".*", "key": "global"}}
    assert client.get("/healthz").status_code == 200
    assert client.get("/healthz").status_code == 429
    for _ in range(3):
        assert figures(client)["all"]["remaining"] == 0


def test_status_of_no_limits_is_empty(client, settings):
    settings.RATELIMIT_LIMITS = {}
    assert client.get(STATUS).json() == {"limits": []}
    settings.RATELIMIT_LIMITS = {"a": "5/min"}
    settings.RATELIMIT_ENABLE = False
    assert client.get(STATUS).json() == {"limits": []}


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_status_can_only_be_looked_at(method, client):
    assert getattr(client, method)(STATUS).status_code == 405


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
def test_status_during_an_outage_is_empty(kind, client, caplog):
    with outage(kind):
        answers = [client.get(STATUS) for _ in range(2)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"limits": []})] * 2
    reports = [record for record in caplog.records if record.name == "ratelimit_app"]
    assert [(record.levelname, "'ratelimit'" in record.message) for record in reports] == [("ERROR", True)]
