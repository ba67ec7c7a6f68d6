"""Reports D: DRF throttles, limits that change, rates, one request counted more than once."""

import logging

import pytest
from django.core import checks
from django.core.exceptions import ValidationError
from django.test import Client
from model_bakery import baker
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from ratelimit_app.throttling import RateLimitThrottle
from tests.field_reports.asking import ENTRIES, ask, field, make_limit, move
from tests.field_reports.views import Drf

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

#: The rate, how many requests are made under it from 12:00:00 on, a second apart, and the lowered rate.
LOWERED = [("5/min", 5, "3/min"), ("10/min", 5, "5/min"), ("5/min", 4, "4/min")]


def use_and_lower(clock, entry, rate, used, lowered):
    limit = make_limit(rate)
    for second in range(used):
        move(clock, f"2026-06-01T12:00:0{second}")
        assert Client().get(entry).status_code == 200
    limit.rate = lowered
    limit.save()
    move(clock, "2026-06-01T12:00:05")


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(("rate", "used", "lowered"), LOWERED)
def test_d01_limit_lowered_to_what_is_used_or_below_refuses_with_the_wait(clock, entry, rate, used, lowered):
    """Units used past a lowered quota are neither a negative rest nor a missing wait."""
    use_and_lower(clock, entry, rate, used, lowered)
    response = Client().get(entry)
    assert (response.status_code, response["Retry-After"]) == (429, "55")
    assert (response.json()["retry_after"], field(response, "r"), field(response, "t")) == (55, 0, 55)


@pytest.mark.parametrize(("rate", "used", "lowered"), LOWERED)
def test_d01_throttle_of_a_lowered_limit_tells_the_same_wait_twice(clock, rate, used, lowered):
    """Asking a throttle for the wait is not what changes the wait."""
    use_and_lower(clock, "/drf", rate, used, lowered)
    throttle = RateLimitThrottle()
    assert not throttle.allow_request(Request(APIRequestFactory().get("/drf")), Drf())
    assert (throttle.wait(), throttle.wait()) == (55, 55)


@pytest.mark.parametrize(
    ("rate", "quota", "window"),
    [
        ("1/10s", 1, 10),
        ("10/15m", 10, 900),
        ("100/h", 100, 3_600),
        ("5/day", 5, 86_400),
        ("1/month", 1, "month"),
    ],
)
def test_d03_rate_that_is_understood_has_its_exact_window(rate, quota, window):
    """No unit is read by its first letter, and a month is a month."""
    policy = Policy.parse(rate)
    assert (policy.quota, policy.window) == (quota, window)


BAD_RATES = [
    "0/m",
    "abc",
    "10",
    "1/",
    "-1/m",
    "5/0s",
    "1e3/m",
    "5/fortnight",
    "\u0663/m",
    "",
    "5/mm",
    "5/m x",
]


@pytest.mark.parametrize("rate", BAD_RATES)
def test_d03_bad_rate_of_a_row_is_an_error_when_saved(rate):
    """The admin's form refuses what could not be applied, beside the field that is wrong."""
    with pytest.raises(ValidationError) as caught:
        Limit(name="bad", rate=rate).full_clean()
    assert list(caught.value.message_dict) == ["rate"]


@pytest.mark.parametrize("rate", BAD_RATES)
def test_d03_bad_rate_in_code_is_an_error_at_start_up(settings, rate):
    """A rate in the settings is read before the first request."""
    settings.RATELIMIT_LIMITS = {"bad": rate}
    assert "ratelimit_app.E004" in [message.id for message in checks.run_checks()]


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("rate", BAD_RATES)
def test_d03_bad_rate_that_got_into_the_table_is_reported_and_limits_nothing(clock, caplog, entry, rate):
    """What went past the validation is an error in the log, not one for each visitor."""
    make_limit(rate)
    assert ask(entry, 2) == [200, 200]
    assert logging.ERROR in [record.levelno for record in caplog.records]
    assert not Counter.objects.exists()


@pytest.mark.parametrize("entry", ENTRIES)
def test_d03_limit_that_is_none_never_counts(clock, settings, entry):
    """None means no limit, and no cost."""
    settings.RATELIMIT_LIMITS = {"case": None}
    assert ask(entry, 50) == [200] * 50
    assert not Counter.objects.exists()


@pytest.mark.parametrize("entry", ["/every-way", "/drf-listed-twice"])
def test_d04_limit_met_several_times_counts_a_request_once(clock, entry):
    """Middleware, decorator and throttle, or one throttle twice, together take one unit."""
    make_limit("4/min", path="^/every-way")
    responses = [Client().get(entry) for _ in range(5)]
    assert [response.status_code for response in responses] == [200] * 4 + [429]
    assert [field(response, "r") for response in responses] == [3, 2, 1, 0, 0]
    assert Counter.objects.get().count == 4


def test_d04_name_in_code_and_in_the_table_is_one_limit(clock, settings):
    """Two definitions of a name are not applied both: the row wins, and is counted once."""
    settings.RATELIMIT_LIMITS = {"case": {"rate": "9/min", "path": "^/every-way"}}
    make_limit("4/min", path="^/every-way")
    responses = [Client().get("/every-way") for _ in range(5)]
    assert [response.status_code for response in responses] == [200] * 4 + [429]
    assert [field(response, "r") for response in responses] == [3, 2, 1, 0, 0]
    assert Counter.objects.get().count == 4


def test_d04_policy_of_the_same_name_counts_apart(clock):
    """A policy made in code takes nothing from the limit that happens to have its name."""
    make_limit("4/min", key="global")
    policy = Policy.parse("2/min", name="case")
    assert [limiter.consume(policy, "global").allowed for _ in range(3)] == [True, True, False]
    assert ask("/every-way", 5) == [200] * 4 + [429]
    assert sorted(Counter.objects.values_list("count", flat=True)) == [2, 4]


def test_d04_other_limit_of_the_decorator_still_counts(clock):
    """That a request was counted by the middleware does not excuse it from the decorator's own limit."""
    baker.make(Limit, name="wide", rate="10/min", path="^/with-own-limit")
    baker.make(Limit, name="own", rate="2/min")
    assert ask("/with-own-limit", 3) == [200, 200, 429]
    assert limiter.peek("own", "ip:127.0.0.1").used == 2
    assert limiter.peek("wide", "ip:127.0.0.1").used == 3
