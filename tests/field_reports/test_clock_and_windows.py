"""Reports C: window edges, waits, months and days."""

import os
import time

import pytest
from django.test import Client, override_settings

from ratelimit_app.models import Counter
from ratelimit_app.testing import frozen_time
from tests.field_reports.asking import ENTRIES, ask, instant, make_limit, move
from tests.races import in_processes

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

OK = (200, None)


def answers(clock, *instants):
    """Ask once at each instant; return the status codes with the waits."""
    answered = []
    for text in instants:
        move(clock, text)
        response = Client().get("/decorated")
        answered.append((response.status_code, response.headers.get("Retry-After")))
    return answered


def test_c01_burst_across_the_edge_is_twice_the_quota_at_most(clock):
    """Fixed windows let through one quota on each side of an edge, and no more."""
    make_limit("10/min")
    move(clock, "2026-06-01T12:00:59.9")
    assert ask("/decorated", 10) == [200] * 10
    move(clock, "2026-06-01T12:01:00.1")
    assert ask("/decorated", 11) == [200] * 10 + [429]


@pytest.mark.parametrize("entry", ENTRIES)
def test_c01_refused_calls_do_not_move_the_window(clock, entry):
    """A client that keeps asking gets in when the window ends, not later."""
    make_limit("1/min")
    statuses = []
    for _ in range(7):
        statuses += ask(entry, 1)
        clock.advance(10)
    assert statuses == [200] + [429] * 5 + [200]


def test_c01_counts_do_not_leak_into_the_next_window(clock):
    """What was used just before the edge takes nothing from the time after it."""
    make_limit("5/min")
    move(clock, "2026-06-01T12:00:58.7")
    assert ask("/decorated", 5) == [200] * 5
    move(clock, "2026-06-01T12:01:00.2")
    assert ask("/decorated", 5) == [200] * 5


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    ("asked_at", "wait"), [("12:00:00.0", 60), ("12:00:58.2", 2), ("12:00:59.3", 1), ("12:00:59.999", 1)]
)
def test_c02_wait_is_whole_seconds_after_which_the_call_is_allowed(clock, entry, asked_at, wait):
    """Retry-After is rounded up and never 0, the body says the same, and it is true."""
    make_limit("3/min")
    assert ask(entry, 3) == [200] * 3
    move(clock, f"2026-06-01T{asked_at}")
    response = Client().get(entry)
    assert (response.status_code, response["Retry-After"]) == (429, str(wait))
    assert response.json()["retry_after"] == wait
    clock.advance(wait)
    assert Client().get(entry).status_code == 200


@pytest.mark.parametrize(
    ("asked_at", "answered"),
    [
        pytest.param(
            ["2028-02-29T23:59:59"] * 4 + ["2028-03-01T00:00:00"], [OK] * 3 + [(429, "1"), OK], id="leap day"
        ),
        pytest.param(
            ["2026-08-21T12:00:00"] * 3 + ["2026-08-22T12:00:00"],
            [OK] * 3 + [(429, str(9 * 86_400 + 43_200))],
            id="mid-month",
        ),
        pytest.param(
            ["2027-01-31T12:00:00"] * 3 + ["2027-02-28T12:00:00"] * 3 + ["2027-03-01T12:00:00"] * 3,
            [OK] * 9,
            id="month ends",
        ),
        pytest.param(["2026-12-31T23:00:00"] * 4, [OK] * 3 + [(429, "3600")], id="end of the year"),
    ],
)
def test_c04_month_is_the_calendar_month(clock, asked_at, answered):
    """A month flips at its end, whatever its length, and not in between."""
    make_limit("3/month")
    assert answers(clock, *asked_at) == answered


#: The rate, the zone; when 5 calls are made, when one more is refused with which wait, and when 5 pass again.
DAYS = [
    ("5/day", "UTC", "2026-06-01T23:59:00", "2026-06-01T23:59:59", "1", "2026-06-02T00:00:01"),
    ("5/day", "Europe/Paris", "2026-06-01T23:59:00", "2026-06-01T23:59:59", "1", "2026-06-02T00:00:01"),
    ("5/calendar day", "UTC", "2026-06-01T23:59:00", "2026-06-01T23:59:59", "1", "2026-06-02T00:00:01"),
    (
        "5/calendar day",
        "Europe/Paris",
        "2026-10-24T22:00:00",
        "2026-10-25T22:30:00",
        "1800",
        "2026-10-25T23:00:00",
    ),
    (
        "5/calendar day",
        "Europe/Paris",
        "2026-03-28T23:00:00",
        "2026-03-29T21:59:00",
        "60",
        "2026-03-29T22:00:00",
    ),
]


def spend_two_days(clock, spent_at, refused_at, again_at):
    return answers(clock, *[spent_at] * 5, refused_at, *[again_at] * 6)


def assert_one_reset(answered, wait):
    assert answered[:6] == [OK] * 5 + [(429, wait)]
    assert [status for status, _ in answered[6:]] == [200] * 5 + [429]


@pytest.mark.parametrize(("rate", "zone", "spent_at", "refused_at", "wait", "again_at"), DAYS)
def test_c05_day_quota_is_given_once_a_day(clock, settings, rate, zone, spent_at, refused_at, wait, again_at):
    """A day ends at midnight of the documented zone, has 23 to 25 hours there, and ends once."""
    settings.RATELIMIT_TIME_ZONE = zone
    make_limit(rate)
    assert_one_reset(spend_two_days(clock, spent_at, refused_at, again_at), wait)
    assert [counter.count for counter in Counter.objects.all()] == [5, 5]


def spend_in_shanghai(index, days):
    """Spend each of the days on a machine that stands in Shanghai."""
    os.environ["TZ"] = "Asia/Shanghai"
    time.tzset()
    answered = []
    for rate, zone, spent_at, refused_at, _, again_at in days:
        limits = {"case": rate}
        with (
            override_settings(
                ROOT_URLCONF="tests.field_reports.urls", RATELIMIT_TIME_ZONE=zone, RATELIMIT_LIMITS=limits
            ),
            frozen_time(instant(spent_at)) as clock,
        ):
            answered.append(spend_two_days(clock, spent_at, refused_at, again_at))
        Counter.objects.all().delete()
    return [time.tzname[0], answered]


@pytest.mark.django_db(transaction=True)
def test_c05_time_zone_of_the_machine_changes_nothing(monkeypatch):
    """Neither the TZ that a process is started with nor the C library's zone moves a day."""
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    [[zone, answered]] = in_processes(1, 1, f"{__name__}:spend_in_shanghai", DAYS)
    assert zone == "CST"
    for (_, _, _, _, wait, _), answer in zip(DAYS, answered, strict=True):
        assert_one_reset(answer, wait)
