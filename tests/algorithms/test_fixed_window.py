import dataclasses
import datetime
import zoneinfo

import pytest

from ratelimit_app.policy import Policy
from ratelimit_app.windows import to_microseconds
from tests.algorithms import oracles
from tests.algorithms.bench import Bench, admitted, ask, outcomes
from tests.algorithms.oracles import Peek
from tests.conftest import NOON

MINUTE = Policy.parse("3/60s")


@pytest.mark.parametrize("table", oracles.FIXED_WINDOW.values(), ids=oracles.FIXED_WINDOW)
def test_steps_have_the_published_outcomes(table):
    assert outcomes(table) == table.steps


def test_every_attempt_counts_where_denied_ones_do():
    bench = Bench(count_denied=True)
    assert [ask(bench, [MINUTE], second).allowed for second in (0, 15, 30, 45)] == [True, True, True, False]
    met = ask(bench, [MINUTE], 45, Peek(1))
    assert (met.used, met.remaining, met.retry_after) == (4, 0, 15)
    next_minute = ask(bench, [MINUTE], 60)
    assert (next_minute.allowed, next_minute.used) == (True, 1)


def test_twice_the_quota_passes_around_an_edge_and_no_more():
    bench, policy = Bench(), Policy.parse("60/min")
    before = [59 + i / 100 for i in range(100)]
    after = [60 + i / 100 for i in range(100)]
    assert (admitted(bench, policy, before), admitted(bench, policy, after)) == (60, 60)


def test_sixty_calls_a_minute_pass_in_an_hour_of_calls_five_times_as_many():
    assert admitted(Bench(), Policy.parse("60/min"), range(0, 3_600, 1)) == 3_600
    assert admitted(Bench(), Policy.parse("60/min"), [i / 5 for i in range(5 * 3_600)]) == 3_600


@pytest.mark.parametrize(
    ("rate", "calls", "passed"),
    [
        ("10/min", [59.9] * 10 + [60.1] * 11, 20),
        ("5/min", [58.7] * 5 + [60.2] * 5, 10),
        ("1/min", [0, 10, 20, 30, 40, 50, 60], 2),
        ("2/min", [59.999_999, 59.999_999, 59.999_999, 60], 3),
        ("10/min", [0.000_001, 30.5, 59.999_999], 3),
    ],
)
def test_window_starts_anew_at_its_edge(rate, calls, passed):
    assert admitted(Bench(), Policy.parse(rate), calls) == passed


@pytest.mark.parametrize(
    ("used", "lowered", "remaining", "retry_after"),
    [(5, 3, 0, 55), (5, 5, 0, 55), (4, 4, 0, 55), (4, 5, 1, 0)],
)
def test_quota_lowered_below_what_is_used_leaves_nothing_and_waits_for_the_end(
    used, lowered, remaining, retry_after
):
    bench, before = Bench(), Policy.parse("5/min")
    assert admitted(bench, before, range(used)) == used
    policy = dataclasses.replace(before, quota=lowered)
    bench.rows = {(policy, start): count for (_, start), count in bench.rows.items()}
    met = ask(bench, [policy], 5, Peek(1))
    assert (met.remaining, met.retry_after) == (remaining, retry_after)


def utc(text):
    return to_microseconds(datetime.datetime.fromisoformat(f"{text}+00:00").timestamp())


CALENDAR = {
    "the end of a leap February": (
        ("3/month", "UTC"),
        [("2028-02-29T23:59:59", True, 0)] * 3
        + [("2028-02-29T23:59:59", False, 1), ("2028-03-01T00:00:00", True, 0)],
    ),
    "within a month": (
        ("3/month", "UTC"),
        [("2026-08-21T12:00:00", True, 0)] * 3 + [("2026-08-22T12:00:00", False, 9.5 * 86_400)],
    ),
    "January does not carry over": (
        ("1/month", "UTC"),
        [
            ("2027-01-31T12:00:00", True, 0),
            ("2027-02-28T12:00:00", True, 0),
            ("2027-03-01T12:00:00", True, 0),
        ],
    ),
    "an hour before the year ends": (
        ("1/month", "UTC"),
        [("2026-12-31T23:00:00", True, 0), ("2026-12-31T23:00:00", False, 3_600)],
    ),
    "a day of the epoch": (
        ("1/day", "Europe/Paris"),
        [
            ("2026-10-24T23:59:00", True, 0),
            ("2026-10-24T23:59:00", False, 60),
            ("2026-10-25T00:00:01", True, 0),
        ],
    ),
    "a day of 25 hours": (
        ("1/calendar day", "Europe/Paris"),
        [
            ("2026-10-24T22:00:00", True, 0),
            ("2026-10-25T22:30:00", False, 1800),
            ("2026-10-25T23:00:00", True, 0),
        ],
    ),
    "a day of 23 hours": (
        ("1/calendar day", "Europe/Paris"),
        [
            ("2026-03-28T23:00:00", True, 0),
            ("2026-03-29T21:59:00", False, 60),
            ("2026-03-29T22:00:00", True, 0),
        ],
    ),
}


@pytest.mark.parametrize(("limit", "steps"), CALENDAR.values(), ids=CALENDAR)
def test_calendar_window_is_waited_for_until_its_own_end(limit, steps):
    rate, zone = limit
    bench, policy = Bench(zone=zoneinfo.ZoneInfo(zone)), Policy.parse(rate)
    decisions = [bench.consume([policy], utc(at)) for at, *_ in steps]
    assert [(decision.allowed, decision.retry_after) for decision in decisions] == [
        step[1:] for step in steps
    ]


def test_row_is_kept_for_one_more_window():
    bench = Bench()
    ask(bench, [MINUTE], 12)
    assert list(bench.expiry.values()) == [to_microseconds(NOON + 120)]


def test_burst_is_refused():
    with pytest.raises(ValueError, match=r"^burst: .* got 10"):
        Policy("api", "fixed_window", 5, 60, burst=10)
