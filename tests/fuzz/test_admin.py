"""Any post to the admin's pages: an answer, and no row that the limits cannot be read from."""

import urllib.parse

import pytest
from django.contrib.auth.models import User
from django.test import Client
from hypothesis import example, given
from hypothesis import strategies as st
from model_bakery import baker

from ratelimit_app import limiter, reporting
from ratelimit_app.models import Counter, Limit, LimitOverride
from ratelimit_app.policy import Policy
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
from tests.fuzz.examples import fuzzed, shaped, texts

pytestmark = pytest.mark.django_db

ADD = "/admin/ratelimit_app/limit/add/"
ADD_OVERRIDE = "/admin/ratelimit_app/limitoverride/add/"
COUNTERS = "/admin/ratelimit_app/limit/counters/"
STATUS = "/ratelimit/status/"
FORM = "application/x-www-form-urlencoded"

RATE = st.sampled_from(["5/min", "100/day", "3/month", "7/2 calendar day", "1/9999999999s"]) | shaped(
    "1", "5", "/", "min", "day", "month", "per", " "
)
NUMBER = (
    st.sampled_from(["", "1", "2", "5", "0", "-1", str(2**62), str(2**63 - 1), str(2**64), "1e3"]) | texts
)
LIMIT = {
    "name": st.sampled_from(["login", "a", "x" * 64, "x" * 65]) | texts,
    "rate": RATE,
    "algorithm": st.sampled_from(
        ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "concurrency"]
    )
    | texts,
    "burst": NUMBER,
    "key": st.sampled_from(["ip", "user", "session", "field:name", "ip + token", "project.keys.client_key"])
    | shaped("ip", "header:", "path:", "field:", "X", ".", "os", "path"),
    "path": st.sampled_from(["", "^/"]) | shaped("(", ")", "[", "a", "*", "+", "?P<", "{99}", "\\", "|"),
    "methods": st.sampled_from(["", "POST", "get, head"]) | texts,
    "mode": st.sampled_from(["enforce", "shadow", "off"]) | texts,
    "count_denied": st.sampled_from(["", "on"]) | texts,
    "cost": NUMBER,
    "charge": st.sampled_from(["before", "after", "failures", "successes"]) | texts,
    "on_error": st.sampled_from(["", "allow", "deny", "local"]) | texts,
    "note": texts,
}
OVERRIDE = {
    "key": st.sampled_from(["user:1", "203.0.113.9", "203.0.113.0/24", "2001:db8::1", "::ffff:10.0.0.0/104"])
    | shaped("ip:", "10.", "0", "/", "::", "ffff", "%", "24", "128"),
    "effect": st.sampled_from(["rate", "exempt", "blocked"]) | texts,
    "rate": RATE | st.just(""),
    "burst": NUMBER,
    "ends_at_0": st.sampled_from(["", "2026-06-02", "0001-01-01", "9999-12-31"]) | texts,
    "ends_at_1": st.sampled_from(["", "12:00", "23:59:59.999999"]) | texts,
    "reason": st.just("why") | texts,
}
COUNT = st.sampled_from(["0", "1", "2", "-1", "x", ""])  # thousands are shown, which takes its time
MANAGEMENT = {
    "overrides-TOTAL_FORMS": COUNT,
    "overrides-INITIAL_FORMS": COUNT,
    "overrides-MIN_NUM_FORMS": COUNT,
    "overrides-MAX_NUM_FORMS": COUNT,
}
GOOD_LIMIT = {
    "name": "login",
    "rate": "5/min",
    "algorithm": "fixed_window",
    "key": "ip",
    "mode": "enforce",
    "cost": "1",
    "charge": "before",
    "overrides-TOTAL_FORMS": "0",
    "overrides-INITIAL_FORMS": "0",
}
GOOD_OVERRIDE = {"key": "user:1", "effect": "rate", "rate": "9/min", "reason": "why"}


def changed(good, fields):
    """A form that was filled in well, but for some of its fields."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda odd: good | odd)


@pytest.fixture
def staff():
    client = Client()
    client.force_login(User.objects.create_superuser("admin"))
    return client


def post(client, page, fields):
    body = urllib.parse.urlencode(fields, errors="surrogatepass")
    return client.generic("POST", page, body, FORM)


def assert_limits_can_be_read(caplog):
    """All that the forms have let in counts, and nothing is reported as ignored."""
    caplog.clear()
    reporting.forget()
    found = limiter.current_limits()
    with frozen_time(NOON):
        for name in Limit.objects.exclude(mode="off").values_list("name", flat=True):
            assert found.find(name) is not None
            for key in ("k", "user:1", "ip:203.0.113.9"):
                limiter.consume(name, key)
                limiter.peek(name, key)
    assert [record.getMessage() for record in caplog.records if record.name == "ratelimit_app"] == []


@fuzzed
@given(
    changed(GOOD_LIMIT, LIMIT | MANAGEMENT),
    changed(GOOD_OVERRIDE, OVERRIDE).map(
        lambda row: {f"overrides-0-{field}": value for field, value in row.items()}
    ),
)
@example(GOOD_LIMIT, {})
def test_any_limit_with_any_override_is_kept_whole_or_told_what_is_wrong(staff, caplog, fields, override):
    Limit.objects.all().delete()
    Counter.objects.all().delete()
    answer = post(staff, ADD, fields | override)
    assert answer.status_code in {200, 302}
    assert Limit.objects.count() == (answer.status_code == 302)
    assert_limits_can_be_read(caplog)


@fuzzed
@given(changed(GOOD_OVERRIDE, OVERRIDE), st.sampled_from(["fixed_window", "token_bucket", "concurrency"]))
@example(GOOD_OVERRIDE, "token_bucket")
def test_any_override_is_kept_whole_or_told_what_is_wrong(staff, caplog, fields, algorithm):
    Limit.objects.all().delete()
    limit = baker.make(Limit, name="login", rate="5/min", algorithm=algorithm, key="ip", cost=2)
    answer = post(staff, ADD_OVERRIDE, fields | {"limit": limit.pk})
    assert answer.status_code in {200, 302}
    assert LimitOverride.objects.count() == (answer.status_code == 302)
    assert_limits_can_be_read(caplog)


@fuzzed
@given(texts | shaped("login@policy", ":fixed_window:", "60:", "k"), texts | shaped("-", "0", ":", "1", "k"))
@example("login@policy:fixed_window:60:k", "")
def test_pages_of_keys_answer_whatever_is_asked_for(staff, text, after):
    Counter.objects.all().delete()
    with frozen_time(NOON):
        limiter.consume(Policy.parse("1/min", name="login"), "k")
    (stored,) = Counter.objects.values_list("key", flat=True)
    query = urllib.parse.urlencode({"q": text, "after": after}, errors="surrogatepass")
    assert staff.get(f"{COUNTERS}?{query}").status_code == 200
    assert staff.get(f"{STATUS}?{query.replace('q=', 'key=', 1)}").status_code == 200
    assert post(staff, COUNTERS, {"key": text}).status_code in {302, 400}
    assert Counter.objects.exists() is (text != stored)
