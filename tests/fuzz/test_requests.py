"""Any request, through the real client: no server error, and nobody else's counter."""

import json
import re
import urllib.parse

import pytest
from django.http import HttpRequest, HttpResponse, QueryDict
from django.test import Client, RequestFactory, override_settings
from django.urls import ResolverMatch, path
from hypothesis import example, given
from hypothesis import strategies as st

from ratelimit_app import keys
from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
from tests.fuzz.examples import fuzzed, headers, pairs, sent, shaped

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

KIND_OF_FORM = "application/x-www-form-urlencoded"

ATTACKER, VICTIM, PROXY = "198.51.100.7", "203.0.113.77", "10.0.0.1"

#: One limit for each way of counting that a request has a say in.
WAYS = ["ip", "user_or_ip", "session", "token", "header:X-Api-Key", "field:name", "path:who"]
WAYS += ["ip + field:name"]


def echo(request: HttpRequest, who: str = "") -> HttpResponse:
    """Answer with the body, which the limits have read before."""
    return HttpResponse(request.read())


urlpatterns = [
    path("echo", ratelimit(*(f"way-{number}" for number in range(len(WAYS))))(echo)),
    path("who/<path:who>", echo),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        f"way-{number}": {"rate": "1/min", "key": way, "path": "^/who/"} for number, way in enumerate(WAYS)
    }
    settings.RATELIMIT_HEADERS = ["ietf", "x_ratelimit"]


FORWARDED = headers(
    ATTACKER, VICTIM, PROXY, "for=", '"', "\\", ",", " ", "[", "]", "::1", ":80", ";", "by=_x"
) | st.sampled_from(
    [VICTIM, f"{VICTIM}, {VICTIM}", f"for={VICTIM}", f'for="{VICTIM}', f"{ATTACKER}, {VICTIM}"]
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "HTTP_X_FORWARDED_FOR": FORWARDED,
        "HTTP_FORWARDED": FORWARDED,
        "HTTP_AUTHORIZATION": headers("Token ", "Bearer ", "Basic ", "abc"),
        "HTTP_COOKIE": headers("sessionid=", "csrftoken=", ";", "abc", '"'),
        "HTTP_ACCEPT": headers("text/html", "*/*", ",", ";q=", "application/json", "1", "0.5"),
        "HTTP_X_API_KEY": headers(),
        "CONTENT_LENGTH": headers() | st.sampled_from(["0", "-1", "3", "99999999999", ""]),
    },
)
KINDS = st.sampled_from(
    [
        KIND_OF_FORM,
        "application/json",
        "application/vnd.api+json",
        "multipart/form-data; boundary=x",
        "text/plain",
    ]
)
KIND = KINDS | headers() | st.tuples(KINDS, headers()).map("; charset=".join)
BODY = (
    st.binary(max_size=200)
    | shaped("name", "=", "bob", "&", "%", "+").map(lambda text: text.encode("utf-8", "surrogatepass"))
    | shaped('{"name": ', '"', "}", "[", "null", "1", "\\ud800", "\\u0000", ",", "NaN").map(
        lambda text: text.encode("utf-8", "surrogatepass")
    )
    | sent().map(
        lambda text: b"".join(
            [
                b'--x\r\nContent-Disposition: form-data; name="name"',
                b"\r\n\r\n",
                text.encode("latin-1"),
                b"\r\n--x--",
            ]
        )
    )
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE"]),
    st.just("/echo") | sent().map("/who/{}".format),
    HEADERS,
    KIND,
    BODY,
)
TRUST = st.sampled_from(
    [(0, "X-Forwarded-For"), (1, "X-Forwarded-For"), (["10.0.0.0/8"], "X-Forwarded-For"), (2, "Forwarded")]
)


def send(asked, remote, **added):
    method, path_info, headers, kind, body = asked
    client = Client(raise_request_exception=False)
    extra = {"CONTENT_LENGTH": str(len(body)), **headers, **added, "PATH_INFO": path_info}
    return client.generic(method, "/", body, kind, REMOTE_ADDR=remote, **extra)


def through_proxies(asked, trust):
    """Return what the proxies add to a request of the attacker's, and whom the server sees."""
    hops, name = trust
    if not hops:
        return {}, ATTACKER
    field = "HTTP_" + name.upper().replace("-", "_")
    seen = [ATTACKER, PROXY][: 2 if hops == 2 else 1]
    entries = [f"for={address}" if name == "Forwarded" else address for address in seen]
    return {field: ", ".join([asked[2].get(field, ""), *entries])}, PROXY


def ask_as_the_victim():
    body = urllib.parse.urlencode({"name": "the victim's own name"}).encode()
    headers = {"HTTP_AUTHORIZATION": "Token of-the-victim-alone", "HTTP_X_API_KEY": "of the victim alone"}
    asked = ("POST", "/who/the-victims-own-place", headers, KIND_OF_FORM, body)
    return send(asked, VICTIM).status_code


@fuzzed
@given(REQUESTS, TRUST)
def test_request_is_no_server_error_and_takes_nothing_from_others(asked, trust):
    Counter.objects.all().delete()
    hops, name = trust
    added, remote = through_proxies(asked, trust)
    with frozen_time(NOON), override_settings(RATELIMIT_TRUSTED_PROXIES=hops, RATELIMIT_PROXY_HEADER=name):
        first, second = send(asked, remote, **added), send(asked, remote, **added)
        if first.status_code >= 500:
            with override_settings(RATELIMIT_ENABLE=False):  # Django's own
                assert send(asked, remote, **added).status_code == first.status_code
        if first.status_code == 200 and asked[0] != "OPTIONS":
            assert_is_refusal(second, asked[0])
            assert_body_has_reached_the_view(first, asked)
    with frozen_time(NOON):
        assert [ask_as_the_victim(), ask_as_the_victim()] == [200, 429]
    assert all(re.fullmatch(r"[!-~]{1,255}", key) for key in Counter.objects.values_list("key", flat=True))


def assert_is_refusal(response, method):
    assert response.status_code == 429
    kind = response["Content-Type"].partition(";")[0]
    assert kind in {"application/problem+json", "text/html"}
    if kind != "text/html" and method != "HEAD":
        assert json.loads(response.content)["status"] == 429


def assert_body_has_reached_the_view(response, asked):
    method, _, headers, _, body = asked
    if method != "HEAD" and "CONTENT_LENGTH" not in headers:
        assert response.content == body


# Two values, two counters -------------------------------------------------------------------------


def by_header(value):
    return RequestFactory().get("/", HTTP_X_API_KEY=value), value


def by_token(value):
    words = value.split()
    seen = words[0] if len(words) == 1 else "none"
    return RequestFactory().get("/", HTTP_AUTHORIZATION=f"Bearer {value}"), seen


def by_form(value):
    body = urllib.parse.urlencode({"name": value}, errors="surrogatepass")
    request = RequestFactory().post("/", body, KIND_OF_FORM)
    return request, QueryDict(body)["name"]


def by_json(value):
    body = json.dumps({"name": value})
    return RequestFactory().post("/", body, "application/json"), json.loads(body)["name"]


def by_path(value):
    request = RequestFactory().get("/")
    request.resolver_match = ResolverMatch(echo, (), {"who": value})
    return request, value


@pytest.mark.parametrize(
    ("spec", "make"),
    [
        ("header:X-Api-Key", by_header),
        ("token", by_token),
        ("field:name", by_form),
        ("field:name", by_json),
        ("path:who", by_path),
    ],
)
@fuzzed
@given(values=pairs)
@example(values=("\ud83d\ude00", "😀"))
@example(values=("a", "a "))
def test_values_share_a_counter_only_if_the_view_cannot_tell_them_apart(spec, make, values):
    (first, seen), (second, other_seen) = map(make, values)
    for key in (keys.load(spec), keys.load(f"{spec} + ip")):
        assert (key(first) == key(second)) == (seen == other_seen)
