"""A live limit is edited: what is used of it stays used, or a count of its own begins."""

import pytest
from django.urls import reverse
from model_bakery import baker

from ratelimit_app import algorithms, limiter
from ratelimit_app.models import Limit

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

KEY = "ip:203.0.113.9"

every_algorithm = pytest.mark.parametrize("algorithm", algorithms.names())


@pytest.fixture
def used_up(algorithm):
    limit = baker.make(Limit, name="edited", rate="5/min", algorithm=algorithm)
    assert limiter.consume("edited", KEY, cost=5).allowed
    assert not limiter.consume("edited", KEY).allowed
    return limit


def edit(limit, **changes):
    for field, value in changes.items():
        setattr(limit, field, value)
    limit.full_clean()
    limit.save()


def look(name="edited"):
    decision = limiter.peek(name, KEY)
    return decision.allowed, decision.remaining, decision.retry_after


#: Seconds to wait for one unit where 5/min were used up at once: under 5/min, and lowered to 3/min. A
#: sliding window waits until enough of them have left it, a bucket for one token of 12 s or 20 s.
WAITS = [
    ("fixed_window", 60.0, 60.0),
    ("sliding_log", 60.0, 60.0),
    ("sliding_window", 72.0, 96.0),
    ("token_bucket", 12.0, 20.0),
]


@pytest.mark.parametrize(("algorithm", "before", "after"), WAITS)
def test_quota_lowered_keeps_what_is_used(used_up, before, after):
    assert look() == (False, 0, before)
    edit(used_up, rate="3/min")
    assert look() == (False, 0, after)


#: What is left of 8 where 5 were used, and the wait for one. A bucket keeps the time until it is full: it
#: stays empty, and fills sooner.
LEFT = [
    ("fixed_window", 3, 0.0),
    ("sliding_log", 3, 0.0),
    ("sliding_window", 3, 0.0),
    ("token_bucket", 0, 7.5),
]


@pytest.mark.parametrize(("algorithm", "left", "wait"), LEFT)
def test_quota_raised_keeps_what_is_used(used_up, left, wait):
    edit(used_up, rate="8/min")
    decision = limiter.peek("edited", KEY)
    assert (decision.remaining, decision.used, decision.retry_after) == (left, 8 - left, wait)


@pytest.mark.parametrize("algorithm", ["token_bucket"])
def test_burst_changed_keeps_what_is_used(used_up):
    edit(used_up, burst=8)
    assert look() == (True, 3, 0.0)
    edit(used_up, burst=3)
    assert limiter.peek("edited", KEY).used == 5
    assert look() == (False, 0, 36.0)


@every_algorithm
@pytest.mark.parametrize("rate", ["5/hour", "5/10s"])
def test_another_window_has_a_count_of_its_own(used_up, rate):
    edit(used_up, rate=rate)
    assert look() == (True, 5, 0.0)
    edit(used_up, rate="5/60s")
    assert not limiter.peek("edited", KEY).allowed


@every_algorithm
@pytest.mark.parametrize("other", algorithms.names())
def test_another_algorithm_has_a_count_of_its_own(used_up, algorithm, other):
    edit(used_up, algorithm=other)
    assert limiter.peek("edited", KEY).used == (5 if other == algorithm else 0)
    edit(used_up, algorithm=algorithm)
    assert not limiter.peek("edited", KEY).allowed


@every_algorithm
def test_another_name_has_a_count_of_its_own(used_up):
    edit(used_up, name="renamed")
    assert look("renamed") == (True, 5, 0.0)
    assert limiter.peek("edited", KEY).policy is None


@every_algorithm
@pytest.mark.parametrize("change", [{"mode": "off"}, {"mode": "shadow"}, {"count_denied": True}, {"cost": 2}])
def test_any_other_edit_keeps_what_is_used(used_up, change):
    if "count_denied" in change and algorithms.holds(used_up.algorithm):
        change = {"note": "a limit that holds counts no refused calls"}
    before = {field: getattr(used_up, field) for field in change}
    edit(used_up, **change)
    assert limiter.peek("edited", KEY, cost=1).allowed == ("mode" in change)
    edit(used_up, **before)
    assert limiter.peek("edited", KEY).used == 5


SAID = [
    "A renamed limit starts to count anew.",
    "Another quota keeps what is used (of a token bucket: the time until it is full), another window starts",
    "The way of counting. Another one starts to count anew.",
]


def test_admin_says_what_an_edit_does_to_the_count(admin_client):
    page = admin_client.get(reverse("admin:ratelimit_app_limit_add")).content.decode()
    assert [text for text in SAID if text not in page] == []
