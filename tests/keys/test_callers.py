import uuid

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.models import Session
from django.test import RequestFactory
from django.urls import ResolverMatch
from django.utils.functional import SimpleLazyObject
from model_bakery import baker

from ratelimit_app import keys
from ratelimit_app.hashing import keyed_hash
from ratelimit_app.models import Counter

SECRET = "s3cret-api-key"


def request(remote="203.0.113.9", **fields):
    return RequestFactory().get("/", REMOTE_ADDR=remote, headers=fields.pop("headers", None), **fields)


@pytest.mark.parametrize("spec", ["user", "user_or_ip"])
def test_user_is_the_account_or_the_address(spec):
    key = keys.load(spec)
    known, anonymous, bare = request(), request(), request()
    known.user, anonymous.user = User(pk=42), AnonymousUser()
    assert key(known) == "user:42"
    assert key(anonymous) == "ip:203.0.113.9"
    assert key(bare) == "ip:203.0.113.9"


def test_user_whose_id_is_an_address_is_not_that_address():
    odd = request()
    odd.user = User(pk="203.0.113.9")
    assert keys.user(odd) != keys.ip(request("203.0.113.9"))


def test_header_is_hashed_and_each_value_has_its_own_key():
    key = keys.load("header:X-Api-Key")
    values = [SECRET, SECRET.upper(), SECRET + "2", "user:7", "x" * 10_000]
    found = [key(request(headers={"X-Api-Key": value})) for value in values]
    assert len(set(found)) == len(values)
    assert all(value not in text for value, text in zip(values, found, strict=True))
    assert found[0] == keys.load("header:x-api-key")(request(headers={"X-API-KEY": SECRET}))


def test_headers_of_two_names_have_two_keys():
    sent = request(headers={"X-Api-Key": SECRET, "X-Token": SECRET})
    assert keys.load("header:X-Api-Key")(sent) != keys.load("header:X-Token")(sent)


@pytest.mark.parametrize("headers", [{}, {"X-Api-Key": ""}])
def test_header_that_is_missing_or_empty_counts_by_address(headers):
    assert keys.load("header:X-Api-Key")(request(headers=headers)) == "ip:203.0.113.9"


@pytest.mark.django_db
def test_header_is_never_stored_nor_logged_in_clear(client, settings, clock, caplog):
    caplog.set_level("DEBUG")
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": "header:X-Api-Key"}}
    answers = [client.get("/export", headers={"X-Api-Key": SECRET}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert SECRET not in Counter.objects.get().key
    assert SECRET not in caplog.text
    assert not any(SECRET in str(answer.headers) + answer.text for answer in answers)


@pytest.mark.django_db
def test_user_key_through_the_client_is_the_account_wherever_from(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": "user"}}
    client.force_login(baker.make(User))
    first = client.get("/export", REMOTE_ADDR="203.0.113.1")
    second = client.get("/export", REMOTE_ADDR="203.0.113.2")
    assert (first.status_code, second.status_code) == (200, 429)


@pytest.mark.django_db
def test_user_key_without_the_middleware_for_accounts_counts_by_address(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": "user", "path": "^/export"}}
    settings.MIDDLEWARE = ["ratelimit_app.middleware.RateLimitMiddleware"]
    remotes = ["203.0.113.1", "203.0.113.1", "203.0.113.2"]
    assert [client.get("/export", REMOTE_ADDR=remote).status_code for remote in remotes] == [200, 429, 200]


@pytest.mark.django_db
def test_hostile_header_values_are_limited_each_on_its_own(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": "header:X-Api-Key"}}
    values = [
        "a" * 256,
        "a" * 300 + "1",
        "a" * 300 + "2",
        "a" * 10_000,
        "bob\x00",
        "bob",
        "é",
        "ÿ",
        "#x",
        "😀",
        "\ud800",
    ]
    for value in values:
        statuses = [client.get("/export", HTTP_X_API_KEY=value).status_code for _ in range(2)]
        assert statuses == [200, 429], value
    assert Counter.objects.count() == len(values)


@pytest.mark.parametrize("spec", ["user", "session"])
def test_key_that_no_middleware_has_provided_for_counts_by_address_and_is_reported(spec, caplog):
    assert [keys.load(spec)(request()) for _ in range(2)] == ["ip:203.0.113.9"] * 2
    assert caplog.messages == [f"A request has no {spec}: is the middleware missing? It counts by address"]


def test_user_that_cannot_be_told_counts_by_address_and_is_reported(caplog):
    made_up = request()
    made_up.user = SimpleLazyObject(lambda: {}["user"])
    assert keys.user(made_up) == "ip:203.0.113.9"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# Sessions -----------------------------------------------------------------------------------------

STORES = ["db", "cached_db", "cache", "file"]


@pytest.fixture
def by_session(settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": "session"}}
    return settings


def statuses(client, times=2, **extra):
    return [client.get("/export", **extra).status_code for _ in range(times)]


@pytest.mark.django_db
@pytest.mark.parametrize("store", STORES)
def test_session_is_counted_wherever_from(store, client, by_session, settings, tmp_path):
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{store}"
    settings.SESSION_FILE_PATH = str(tmp_path)
    session = client.session
    session.save()
    assert statuses(client, REMOTE_ADDR="203.0.113.1") == [200, 429]
    assert statuses(client, REMOTE_ADDR="203.0.113.2") == [429, 429]
    assert session.session_key not in Counter.objects.get().key


@pytest.mark.django_db
@pytest.mark.parametrize("store", [*STORES, "signed_cookies"])
def test_made_up_session_counts_by_address(store, client, by_session, settings, tmp_path):
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{store}"
    settings.SESSION_FILE_PATH = str(tmp_path)
    for number in range(4):
        client.cookies[settings.SESSION_COOKIE_NAME] = f"{number}" * 32
        assert statuses(client, 1) == [429 if number else 200]
    assert Counter.objects.get().key.endswith("ip:127.0.0.1")


@pytest.mark.django_db
def test_session_in_signed_cookies_counts_by_address(client, by_session, settings):
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    for number in range(2):
        session = client.session
        session["number"] = number
        session.save()
        client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key
        assert statuses(client, 1) == [429 if number else 200]


@pytest.mark.django_db
def test_nobody_gets_a_session_by_being_counted(client, by_session):
    answer = client.get("/export")
    assert answer.status_code == 200
    assert not answer.cookies
    assert not Session.objects.exists()


def test_session_that_cannot_be_read_counts_by_address_and_is_reported(caplog):
    sent = request()
    sent.session = SimpleLazyObject(lambda: {}["session"])
    assert keys.session(sent) == "ip:203.0.113.9"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# Tokens -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", ["Token {}", "Bearer {}", "token {}", "BEARER {}", "Token  {}", "Token\t{} "]
)
def test_token_has_one_key_however_it_is_sent(sent):
    key = keys.load("token")(request(headers={"Authorization": sent.format(SECRET)}))
    assert key == f"token:{keyed_hash(SECRET)}"


def test_each_token_has_its_own_key():
    values = [SECRET, SECRET.upper(), "7", "ip:203.0.113.9", "x" * 10_000, "\ud800", "é"]
    found = {keys.token(request(HTTP_AUTHORIZATION=f"Token {value}")) for value in values}
    assert len(found) == len(values)


@pytest.mark.parametrize(
    "sent", [None, "", "Token", "Token ", "Basic dXNlcjpwdw==", "Token a b", SECRET, "Digest x", "\x00"]
)
def test_what_is_no_token_counts_by_address(sent):
    fields = {} if sent is None else {"HTTP_AUTHORIZATION": sent}
    assert keys.token(request(**fields)) == "ip:203.0.113.9"


# Parameters of the URL ----------------------------------------------------------------------------


def on_route(remote="203.0.113.9", **parameters):
    sent = request(remote)
    sent.resolver_match = ResolverMatch(lambda request: None, (), parameters)
    return sent


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("acme", "path:tenant:acme"),
        ("Acme", "path:tenant:Acme"),
        (7, "path:tenant:7"),
        (uuid.UUID(int=7), "path:tenant:00000000-0000-0000-0000-000000000007"),
        ("203.0.113.9", "path:tenant:203.0.113.9"),
        ("", "ip:203.0.113.9"),
        (None, "ip:203.0.113.9"),
        (object(), "ip:203.0.113.9"),
    ],
)
def test_path_is_the_parameter_or_the_address(value, key):
    assert keys.load("path:tenant")(on_route(tenant=value)) == key


def test_path_without_that_parameter_or_without_a_route_counts_by_address():
    assert keys.load("path:tenant")(on_route(other="acme")) == "ip:203.0.113.9"
    assert keys.load("path:tenant")(request()) == "ip:203.0.113.9"


def test_parameters_of_two_names_have_two_keys():
    sent = on_route(a="x", b="x")
    assert keys.load("path:a")(sent) != keys.load("path:b")(sent)
