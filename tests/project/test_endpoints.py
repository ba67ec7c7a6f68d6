"""What the source documents of the demo ask of its endpoints."""

import json

import http_sf
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from model_bakery import baker

from project.models import ApiCall
from ratelimit_app import limiter
from ratelimit_app.models import Counter
from tests.outages import outage

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

HOSTILE = [
    "a" * 256,
    "a" * 300 + "1",
    "a" * 300 + "2",
    "a" * 100_000,
    "bob",
    "bob\x00",
    "bob ",
    "Bob",
    "é",
    "ÿ",
    "😀",
    "\ud800",
    "' OR 1=1 --",
    "${jndi:ldap://x}",
    "127.0.0.1, x",
    "%s",
    "\r\nX: y",
]


def ping(client, key=None, **extra):
    return client.get("/ping", headers=None if key is None else {"X-Client-Key": key}, **extra)


def count(client, key):
    return client.get("/status", {"key": key}).json()["count"]


# /ping and /status --------------------------------------------------------------------------------


def test_ping_three_a_minute_and_every_attempt_is_counted(client, clock):
    answers = []
    for _ in range(4):
        answers.append(ping(client, "me"))
        clock.advance(15)
    clock.advance(-15)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3]["Retry-After"] == "15"
    assert answers[3]["Content-Type"] == "application/problem+json"
    assert answers[3].json()["retry_after"] == 15
    assert [count(client, "me") for _ in range(3)] == [4, 4, 4]
    clock.advance(15)
    assert ping(client, "me").status_code == 200
    assert count(client, "me") == 1


def test_ping_shows_its_limit(client):
    answer = ping(client, "me")
    assert answer.json() == {"pong": True}
    assert http_sf.parse(answer["RateLimit-Policy"].encode(), tltype="list") == [("ping", {"q": 3, "w": 60})]
    assert http_sf.parse(answer["RateLimit"].encode(), tltype="list") == [("ping", {"r": 2, "t": 60})]


@pytest.mark.parametrize("headers", [None, {"X-Client-Key": ""}])
def test_ping_without_a_key_counts_as_127_0_0_1(headers, client):
    client.get("/ping", headers=headers, REMOTE_ADDR="203.0.113.1")
    client.get("/ping", headers=headers, REMOTE_ADDR="203.0.113.2")
    assert client.get("/status").json() == {"key": "127.0.0.1", "count": 2}
    assert client.get("/status?key=127.0.0.1").json() == {"key": "127.0.0.1", "count": 2}


def test_ping_with_that_key_counts_with_those_who_send_none(client):
    ping(client)
    ping(client, "127.0.0.1")
    assert count(client, "127.0.0.1") == 2


def test_ping_keys_are_counted_apart(client):
    assert [ping(client, "a").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert ping(client, "b").status_code == 200
    assert (count(client, "a"), count(client, "b"), count(client, "c")) == (4, 1, 0)


def test_ping_is_audited_only_when_it_was_answered(client):
    for _ in range(5):
        ping(client, "secret-key")
    assert ApiCall.objects.count() == 3
    assert not ApiCall.objects.filter(client__contains="secret-key").exists()


def test_ping_of_hostile_keys_is_never_an_error(client):
    for key in HOSTILE:
        statuses = [client.get("/ping", HTTP_X_CLIENT_KEY=key).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429], key
    assert Counter.objects.count() == len(HOSTILE)
    assert ApiCall.objects.count() == 3 * len(HOSTILE)


@pytest.mark.parametrize("key", HOSTILE, ids=range(len(HOSTILE)))
def test_status_of_a_hostile_key_is_never_an_error(key, client):
    sent = key.encode("utf-8", "surrogatepass")
    assert client.get("/status", {"key": sent}).json()["count"] == 0


def test_status_counts_nothing_and_makes_no_row(client):
    for _ in range(5):
        assert client.get("/status?key=never").json() == {"key": "never", "count": 0}
    assert not Counter.objects.exists()


def test_prune_keeps_the_current_window_and_the_one_before(client, clock):
    ping(client, "me")
    clock.advance(60)
    ping(client, "me")
    call_command("prune_ratelimits", verbosity=0)
    assert Counter.objects.count() == 2
    clock.advance(60)
    call_command("prune_ratelimits", verbosity=0)
    assert Counter.objects.count() == 1
    clock.advance(-60)
    assert count(client, "me") == 1


@pytest.mark.parametrize("where", ["/ping", "/status", "/work"])
def test_only_get_is_answered(where, client):
    assert client.post(where).status_code == 405
    assert not Counter.objects.exists()


# /work --------------------------------------------------------------------------------------------


def test_work_two_in_any_ten_seconds_in_its_own_words(client, clock):
    clock.advance(5)  # what is counted by windows of the clock would start anew after five seconds
    answers, start = [], clock.now
    for at, who in [(0, "a"), (0, "a"), (0.2, "a"), (0.2, "b"), (9.8, "a"), (10, "a")]:
        clock.advance(start + at - clock.now)
        answer = client.get("/work", headers={"X-Client-ID": who})
        answers.append((answer.status_code, answer.json(), answer.get("Retry-After")))
    done = (200, {"ok": True}, None)
    assert answers == [
        done,
        done,
        (429, {"error": "rate_limited"}, "10"),
        done,
        (429, {"error": "rate_limited"}, "1"),
        done,
    ]


@pytest.mark.parametrize("who", ["a", "A-1", "-", "0", "a" * 40, "Z9-" * 13])
def test_work_answers_those_who_say_who_they_are(who, client):
    assert client.get("/work", headers={"X-Client-ID": who}).json() == {"ok": True}


@pytest.mark.parametrize(
    "who", ["", "a" * 41, "a b", "a_b", "a.b", "é", "\u0663", "a\n", "\x00", "a" * 100_000, "a,b", "\ud800"]
)
def test_work_refuses_those_who_do_not_and_counts_nothing(who, client):
    for answer in (client.get("/work", HTTP_X_CLIENT_ID=who), client.get("/work")):
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid_client"})
    assert not Counter.objects.exists()


# /api/reports, /export ----------------------------------------------------------------------------


def test_reports_five_a_minute_within_those_of_the_api(client):
    answers = [client.get("/api/reports") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert answers[0].json() == {"reports": []}
    assert http_sf.parse(answers[0]["RateLimit"].encode(), tltype="list") == [
        ("api", {"r": 99, "t": 60}),
        ("reports", {"r": 4, "t": 60}),
    ]
    assert answers[5].json()["violated-policies"] == ["reports"]


def test_reports_are_counted_by_account_for_those_who_have_one(client):
    for _ in range(5):
        client.get("/api/reports")
    client.force_login(baker.make(User))
    assert client.get("/api/reports").status_code == 200
    assert Client().get("/api/reports").status_code == 429


def test_export_twice_a_minute(client, clock):
    clock.advance(58.2)
    answers = [client.get("/export") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].content == b"id,total\r\n"
    assert answers[2]["Retry-After"] == "2"
    clock.advance(2)
    assert client.get("/export").status_code == 200


def test_export_for_each_address(client):
    for remote in ("203.0.113.1", "203.0.113.2"):
        statuses = [client.get("/export", REMOTE_ADDR=remote).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]


# /login/ ------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def quick_passwords(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def account():
    return User.objects.create_user("victim", password="right")


def login(client, username="victim", password="wrong", where="/login/", **extra):
    return client.post(where, {"username": username, "password": password}, **extra)


def test_login_five_posts_a_minute_and_looking_is_free(client, account):
    assert [client.get("/login/").status_code for _ in range(9)] == [200] * 9
    assert [login(client).status_code for _ in range(6)] == [200] * 5 + [429]
    assert login(client, password="right").status_code == 429
    assert client.get("/login/").status_code == 200
    assert Counter.objects.get().count == 5


def test_login_from_elsewhere_is_not_shut_out(client, account):
    for _ in range(6):
        login(client, REMOTE_ADDR="203.0.113.1")
    answer = login(client, password="right", REMOTE_ADDR="203.0.113.2")
    assert (answer.status_code, answer["Location"]) == (302, "/ratelimit/status/")


def test_login_does_not_betray_who_has_an_account(client, account):
    answers = {}
    for name, remote in (("victim", "203.0.113.1"), ("nobody", "203.0.113.2")):
        tried = [login(Client(), name, REMOTE_ADDR=remote) for _ in range(6)]
        answers[name] = [(answer.status_code, answer.get("RateLimit")) for answer in tried]
    assert answers["victim"] == answers["nobody"]


@pytest.mark.parametrize("where", ["/login/?x=1", "/%6Cogin/", "/login/?next=/"])
def test_login_spelled_otherwise_is_the_same_login(where, client):
    for _ in range(5):
        login(client)
    assert login(client, where=where).status_code == 429


@pytest.mark.parametrize("where", ["//login/", "/LOGIN/", "/login", "/login//", "/healthz/../login/"])
def test_login_spelled_wrong_is_no_way_round(where, client):
    for _ in range(5):
        login(client)
    assert login(client, where=where).status_code in (301, 302, 404)
    assert Counter.objects.get().count == 5


def test_login_that_fails_the_csrf_check_is_counted():
    client = Client(enforce_csrf_checks=True)
    assert [login(client).status_code for _ in range(6)] == [403] * 5 + [429]


# Who is never stopped -----------------------------------------------------------------------------


def test_probe_and_admin_are_answered_whatever_the_limits(client, settings):
    settings.RATELIMIT_LIMITS = {"all": {"rate": "1/day", "path": ".*", "key": "global"}}
    assert client.get("/export").status_code == 200
    assert client.get("/export").status_code == 429
    for where in ("/healthz", "/admin/login/", "/ratelimit/status/"):
        answers = [client.get(where) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 5, where
    assert limiter.peek("all", "global").used == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
def test_outage_of_the_counters_lets_every_endpoint_answer(kind, client):
    with outage(kind):
        for _ in range(4):
            assert ping(client, "me").status_code == 200
            assert client.get("/work", headers={"X-Client-ID": "me"}).status_code == 200
            for where in ("/status", "/export", "/api/reports", "/login/", "/healthz", "/ratelimit/status/"):
                assert client.get(where).status_code == 200, where
            assert login(client).status_code == 200
    assert ApiCall.objects.count() == 4
    assert json.loads(ping(client, "me").content) == {"pong": True}
