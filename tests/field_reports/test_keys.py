"""Reports K: hostile keys, keys that run into each other, addresses spelt in another way."""

import re
import urllib.parse

import pytest
from django.conf import settings as project
from django.contrib.auth.models import User
from django.test import Client
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from tests.field_reports.asking import ask, make_limit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

HOSTILE = {
    "256": "a" * 256,
    "301 ending in 1": "a" * 300 + "1",
    "301 ending in 2": "a" * 300 + "2",
    "10,000": "a" * 10_000,
    "NUL": "bob\x00",
    "without NUL": "bob",
    "lone surrogate": "\ud800",
    "emoji": "\N{PILE OF POO}",
}


def assert_stored_apart_and_bounded():
    stored = Counter.objects.values_list("key", "count")
    assert [count for _, count in stored] == [5] * len(HOSTILE)
    assert all(re.fullmatch(r"[!-~]{1,255}", key) for key, _ in stored)


def test_k02_hostile_key_in_code_is_limited_for_itself(clock):
    """No text is too long or too odd for a key, and none is cut so that it becomes another."""
    policy = Policy.parse("5/min")
    for key in HOSTILE.values():
        assert [limiter.consume(policy, key).allowed for _ in range(6)] == [True] * 5 + [False]
    assert_stored_apart_and_bounded()


def test_k02_hostile_header_is_limited_for_itself(clock):
    """A header decides neither about the server's answer nor about another caller's count."""
    make_limit("5/min", key="header:X-Api-Key")
    for value in HOSTILE.values():
        assert ask("/decorated", 6, headers={"X-Api-Key": value}) == [200] * 5 + [429]
    assert_stored_apart_and_bounded()


def test_k02_hostile_path_is_limited_for_itself(clock):
    """A key function of the project's own may return whatever the address holds."""
    baker.make(Limit, name="who", rate="5/min", path="^/who/", key="tests.field_reports.views.path_key")
    for value in HOSTILE.values():
        path = "/who/" + urllib.parse.quote(value.encode("utf-8", "surrogatepass"))
        assert ask(path, 6) == [200] * 5 + [429]
    assert_stored_apart_and_bounded()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("a", ":b"), ("a:", "b")),
        (("a%3A", "b"), ("a:", "b")),
        (("a@policy:fixed_window:60:b", "c"), ("a", "b@policy:fixed_window:60:c")),
    ],
)
def test_k03_name_and_key_do_not_run_into_each_other(clock, first, second):
    """The name of a limit and a key are told apart, whatever separators they hold."""
    for name, key in (first, second):
        policy = Policy.parse("1/min", name=name)
        assert [limiter.consume(policy, key).allowed for _ in range(2)] == [True, False]


def test_k03_address_and_path_do_not_run_into_each_other(clock):
    """10.0.0.1 on /1/x is not 10.0.0.11 on /x."""
    baker.make(Limit, name="all", rate="1/min", path=".")
    assert ask("/1/x", 2, REMOTE_ADDR="10.0.0.1") == [200, 429]
    assert ask("/x", 2, REMOTE_ADDR="10.0.0.11") == [200, 429]


def test_k03_user_id_that_is_an_address_is_no_address(clock, settings):
    """Accounts and addresses are two namespaces."""
    settings.MIDDLEWARE = [*project.MIDDLEWARE, "tests.field_reports.views.log_in_by_header"]
    make_limit("1/min", key="user_or_ip")
    assert ask("/decorated", 2, headers={"X-User": "127.0.0.1"}) == [200, 429]
    assert ask("/decorated", 2, REMOTE_ADDR="127.0.0.1") == [200, 429]


def test_k03_header_that_reads_like_a_user_is_no_user(clock):
    """Headers and accounts are two namespaces, in one key function too."""
    make_limit("1/min", key="tests.field_reports.views.header_or_user")
    client = Client()
    client.force_login(baker.make(User, pk=7))
    assert ask("/decorated", 2, headers={"X-Api-Key": "user:7"}) == [200, 429]
    assert ask("/decorated", 2, client) == [200, 429]


def test_k03_header_that_reads_like_an_address_is_no_address(clock):
    """Who sends an address as a key does not spend what that address has without one."""
    make_limit("1/min", key="header:X-Api-Key")
    assert ask("/decorated", 2, headers={"X-Api-Key": "ip:127.0.0.1"}) == [200, 429]
    assert ask("/decorated", 2, REMOTE_ADDR="127.0.0.1") == [200, 429]


#: The middleware's limit, and the decorator's.
BY_PATH_OR_NAME = [{"name": "by-path", "path": "^/(login|verify)/"}, {"name": "case", "path": ""}]


@pytest.mark.parametrize("limit", BY_PATH_OR_NAME)
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/login/?x=1", 429),
        ("/%6Cogin/", 429),
        ("//login/", 404),
        ("/LOGIN/", 404),
        ("/login", 301),
        ("/./login/", 404),
        ("/login/;x", 404),
    ],
)
def test_k06_respelt_path_is_no_fresh_start(clock, limit, path, status):
    """What reaches the same view is refused; the rest reaches none, and starts no counter."""
    make_limit("5/min", methods="POST", **limit)
    assert [post("/login/") for _ in range(5)] == [200] * 5
    assert post(path) == status
    assert Counter.objects.get().count == 5
    assert post("/login/") == 429


@pytest.mark.parametrize("limit", BY_PATH_OR_NAME)
def test_k06_codes_in_the_path_share_a_counter(clock, limit):
    """Guessing codes at one view is counted as one, however many addresses the codes make."""
    make_limit("5/min", **limit)
    assert [post(f"/verify/{code}/") for code in range(20)] == [200] * 5 + [429] * 15
    assert Counter.objects.get().count == 5


def post(target):
    """Post to a target as a server passes it on: unquoted, and otherwise as it was sent."""
    path, _, query = target.partition("?")
    path = urllib.parse.unquote_to_bytes(path).decode("latin-1")
    return Client().generic("POST", "/", PATH_INFO=path, QUERY_STRING=query).status_code
