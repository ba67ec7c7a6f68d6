import pytest
from django.contrib.auth.models import User
from django.test import RequestFactory

from ratelimit_app import keys, limiter
from ratelimit_app.models import Counter

not_callable = 5


async def awaited(request):
    return "never"


def none(request):
    return None


def request(remote="203.0.113.9", **fields):
    return RequestFactory().get("/", REMOTE_ADDR=remote, headers=fields.pop("headers", None), **fields)


def test_global_is_one_key_for_all():
    key = keys.load("global")
    assert key(request("203.0.113.9")) == key(request("198.51.100.7")) == "global"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "got ''"),
        (["ip"], "a text, got ['ip']"),
        (None, "a text, got None"),
        ("IP", "ip, user, user_or_ip, session, token, global, header:<name>, path:<parameter>, field:<name>"),
        ("address", "got 'address'"),
        ("header:", "got 'header:'"),
        ("header:X Api", "got 'header:X Api'"),
        ("header:X-Api\n", "got 'header:X-Api"),
        ("Header:X-Api", "got 'Header:X-Api'"),
        ("path", "got 'path'"),
        ("path:", "got 'path:'"),
        ("path:1a", "got 'path:1a'"),
        ("path:a-b", "got 'path:a-b'"),
        ("field:", "got 'field:'"),
        ("field:a b", "got 'field:a b'"),
        ("session:x", "got 'session:x'"),
        ("ip ", "got 'ip '"),
        ("ip+user", "got 'ip+user'"),
        ("ip + ", "got ''"),
        (" + ip", "got ''"),
        ("ip  + user", "got 'ip '"),
        ("ip + nosuch", "got 'nosuch'"),
        ("ip + no.such.module", "'no.such.module' cannot be imported"),
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


# Several together ---------------------------------------------------------------------------------


def test_combined_key_has_all_parts_in_their_order():
    sent = request()
    sent.user = User(pk=42)
    assert keys.load("ip + user")(sent) == "ip:203.0.113.9+user:42"
    assert keys.load("user + global + ip")(sent) == "user:42+global+ip:203.0.113.9"


def test_combined_key_with_a_part_that_is_not_limited_is_not_limited():
    assert keys.load(f"ip + {__name__}.none")(request()) is None


def test_missing_part_of_a_combined_key_is_the_address():
    key = keys.load("user + header:X-Api-Key")
    assert key(request("203.0.113.1")) == "ip:203.0.113.1+ip:203.0.113.1"
    assert key(request("203.0.113.1")) != key(request("203.0.113.2"))


TEXTS = ["", "+", "%", "a", "a+", "+a", "%2B", "%25", "a+b", "b", "\x00", "\ud800"]


def test_no_two_lists_of_parts_have_the_same_text():
    pairs = [(first, second) for first in TEXTS for second in TEXTS]
    found = {keys.combined([lambda _, text=text: text for text in pair], request()) for pair in pairs}
    assert len(found) == len(pairs)


@pytest.mark.django_db
def test_combined_key_through_the_client_counts_each_pair(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": {"rate": "1/min", "key": "ip + header:X-Api-Key"}}
    pairs = [(remote, name) for remote in ("203.0.113.1", "203.0.113.2") for name in ("a", "b")]
    for remote, name in pairs:
        answers = [client.get("/export", REMOTE_ADDR=remote, headers={"X-Api-Key": name}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
    assert Counter.objects.count() == len(pairs)


@pytest.mark.django_db
def test_key_of_a_decision_is_the_one_given(clock, settings):
    settings.RATELIMIT_LIMITS = {"a": "1/min"}
    assert limiter.consume("a", "\x00\ud800").key == "\x00\ud800"
