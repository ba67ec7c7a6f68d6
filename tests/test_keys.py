import operator
import sys

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.test import RequestFactory
from django.utils.functional import SimpleLazyObject
from model_bakery import baker

from ratelimit_app import keys, limiter
from ratelimit_app.models import Counter

SECRET = "s3cret-api-key"


def request(remote="203.0.113.9", **fields):
    return RequestFactory().get("/", REMOTE_ADDR=remote, headers=fields.pop("headers", None), **fields)


def none(request):
    return None


def number(request):
    return 42


def wrong(request):
    raise LookupError("no such tenant")


def leave(request):
    sys.exit("no more")


async def awaited(request):
    return "never"


def later(request):
    answer = awaited(request)
    answer.close()
    return answer


class NoText:
    pass


def no_text(request):
    return NoText()


class Tenant:
    def __call__(self, request):
        return "tenant:1"


tenant = Tenant()
path = operator.attrgetter("path")
not_callable = 5


# Addresses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remote", "key"),
    [
        ("203.0.113.9", "ip:203.0.113.9"),
        ("2001:db8:1:2::1", "ip:2001:db8:1:2::/64"),
        ("2001:0DB8:0001:0002:0000:0000:0000:0014", "ip:2001:db8:1:2::/64"),
        ("2001:db8:1:2::198.51.100.7", "ip:2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "ip:2001:db8:1:3::/64"),
        ("fe80::1%eth0", "ip:fe80::/64"),
        ("::1", "ip:::/64"),
        ("::ffff:198.51.100.7", "ip:198.51.100.7"),
        ("::FFFF:c633:6407", "ip:198.51.100.7"),
        ("0:0:0:0:0:ffff:c633:6408", "ip:198.51.100.8"),
    ],
)
def test_ip_of_an_address(remote, key, caplog):
    assert keys.ip(request(remote)) == key
    assert not caplog.records


@pytest.mark.parametrize(
    ("prefix", "key"),
    [
        (128, "ip:2001:db8:1:2::9/128"),
        (64, "ip:2001:db8:1:2::/64"),
        (48, "ip:2001:db8:1::/48"),
        (1, "ip:::/1"),
    ],
)
def test_ip_counts_by_the_prefix_of_the_setting(prefix, key, settings):
    settings.RATELIMIT_IPV6_PREFIX = prefix
    assert keys.ip(request("2001:db8:1:2::9")) == key
    assert keys.ip(request("203.0.113.9")) == "ip:203.0.113.9"


MALFORMED = [
    "",
    "unknown",
    "_hidden",
    "203.0.113.9:49152",
    "203.0.113.009",
    " 203.0.113.9 ",
    "203.0.113.9, 198.51.100.7",
    "[2001:db8::1]:443",
    "2001:db8::/64",
    "::/64",
    "3405803785",
    "${jndi:ldap://x}",
    "\x00",
    "\ud800",
    "x" * 10_000,
]
REAL = ["203.0.113.9", "198.51.100.7", "2001:db8::1", "::1", "2001:db8:1:2::9"]


@pytest.mark.parametrize("remote", MALFORMED, ids=range(len(MALFORMED)))
def test_ip_of_what_is_no_address_is_nobody_elses_and_is_reported(remote, caplog):
    key = keys.ip(request(remote))
    assert key not in {keys.ip(request(real)) for real in REAL}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert len(caplog.messages[0]) < 200


@pytest.mark.django_db
@pytest.mark.parametrize("remote", MALFORMED, ids=range(len(MALFORMED)))
def test_ip_of_what_is_no_address_is_still_limited(remote, client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": "2/min"}
    statuses = [client.get("/export", REMOTE_ADDR=remote).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert Counter.objects.get().count == 2


def test_ip_without_a_remote_address_is_one_for_all(caplog):
    bare = request()
    del bare.META["REMOTE_ADDR"]
    assert keys.ip(bare) == keys.ip(request(""))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Client-IP"])
def test_ip_believes_no_header(name):
    assert keys.ip(request(headers={name: "198.51.100.7"})) == "ip:203.0.113.9"


# Accounts, headers, everyone ----------------------------------------------------------------------


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


def test_global_is_one_key_for_all():
    key = keys.load("global")
    assert key(request("203.0.113.9")) == key(request("198.51.100.7")) == "global"


# Functions of the project's own -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "key"), [("none", None), ("number", "42"), ("tenant", "tenant:1"), ("path", "/")]
)
def test_own_function_returns_a_text_or_none(name, key):
    assert keys.load(f"{__name__}.{name}")(request()) == key


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "failed"),
        ("leave", "failed"),
        ("no_text", "returned a NoText"),
        ("later", "returned a coroutine"),
    ],
)
def test_own_function_that_fails_counts_by_address_and_is_reported_once(name, words, caplog):
    key = keys.load(f"{__name__}.{name}")
    assert [key(request()), key(request())] == ["ip:203.0.113.9"] * 2
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", f"The key function {name} {words}")
    ]


def test_user_that_cannot_be_told_counts_by_address_and_is_reported(caplog):
    made_up = request()
    made_up.user = SimpleLazyObject(lambda: wrong(made_up))
    assert keys.user(made_up) == "ip:203.0.113.9"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.django_db
def test_own_function_that_returns_none_limits_nothing(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": f"{__name__}.none"}}
    answers = [client.get("/export") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert "RateLimit" not in answers[0]
    assert not Counter.objects.exists()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "got ''"),
        ("IP", "ip, user, user_or_ip, global"),
        ("address", "got 'address'"),
        ("header:", "got 'header:'"),
        ("header:X Api", "got 'header:X Api'"),
        ("header:X-Api\n", "got 'header:X-Api"),
        ("ip ", "got 'ip '"),
        ("no.such.module", "'no.such.module' cannot be imported"),
        ("tests.test_keys.nosuch", "cannot be imported"),
        ("tests.test_keys.not_callable", "is not a function that can be called"),
        ("tests.test_keys.awaited", "is not a function that can be called"),
        ("tests..x", "got 'tests..x'"),
    ],
)
def test_unknown_spec_is_an_error_that_says_so(spec, words):
    with pytest.raises(ValueError, match=r"^key: ") as caught:
        keys.load(spec)
    assert words in str(caught.value)


# Through the front door ---------------------------------------------------------------------------


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
def test_addresses_of_one_network_share_a_row(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": "5/min"}
    statuses = [client.get("/export", REMOTE_ADDR=f"2001:db8:1:2::{n:x}").status_code for n in range(1, 21)]
    assert statuses == [200] * 5 + [429] * 15
    assert client.get("/export", REMOTE_ADDR="2001:db8:1:3::1").status_code == 200
    assert Counter.objects.count() == 2


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


@pytest.mark.django_db
def test_key_of_a_decision_is_the_one_given(clock, settings):
    settings.RATELIMIT_LIMITS = {"a": "1/min"}
    assert limiter.consume("a", "\x00\ud800").key == "\x00\ud800"
