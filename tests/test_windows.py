import datetime
import zoneinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratelimit_app import windows
from ratelimit_app.windows import CALENDAR_UNITS, MICROSECONDS

UTC = datetime.timezone.utc


def instant(text):
    """Read '2026-06-01T12:00' (UTC) as integer microseconds since the epoch."""
    moment = datetime.datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=UTC)) // datetime.timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("window", "now", "start", "end"),
    [
        (60, 0, 0, 60),
        (60, 59.999_999, 0, 60),
        (60, 60, 60, 120),
        (60, -0.000_001, -60, 0),
        (60, -60, -60, 0),
        (60, -60.000_001, -120, -60),
        (0.5, 1.4, 1.0, 1.5),
        (0.000_001, 7, 7, 7.000_001),
        (90, 1_780_315_200, 1_780_315_200, 1_780_315_290),
        (86_400, 1_780_315_200, 1_780_272_000, 1_780_358_400),
    ],
)
def test_window_in_seconds_is_aligned_to_the_epoch(window, now, start, end):
    expected = windows.to_microseconds(start), windows.to_microseconds(end)
    assert windows.bounds(window, windows.to_microseconds(now), UTC) == expected


def test_window_in_seconds_is_the_same_in_every_zone():
    now = instant("2026-10-25T01:30")
    assert windows.bounds(86_400, now, zoneinfo.ZoneInfo("Europe/Paris")) == windows.bounds(86_400, now, UTC)


CALENDAR = [
    # zone, unit, an instant, start and end of its window: all in UTC
    ("UTC", "day", "2026-06-01T12:00", "2026-06-01T00:00", "2026-06-02T00:00"),
    ("UTC", "day", "2026-06-01T00:00", "2026-06-01T00:00", "2026-06-02T00:00"),
    ("UTC", "day", "2026-05-31T23:59:59.999999", "2026-05-31T00:00", "2026-06-01T00:00"),
    ("UTC", "week", "2026-06-01T00:00", "2026-06-01T00:00", "2026-06-08T00:00"),
    ("UTC", "week", "2026-05-31T23:59", "2026-05-25T00:00", "2026-06-01T00:00"),
    ("UTC", "week", "2027-01-01T12:00", "2026-12-28T00:00", "2027-01-04T00:00"),
    ("UTC", "month", "2026-01-31T12:00", "2026-01-01T00:00", "2026-02-01T00:00"),
    ("UTC", "month", "2027-02-28T23:59", "2027-02-01T00:00", "2027-03-01T00:00"),
    ("UTC", "month", "2028-02-29T23:59:59", "2028-02-01T00:00", "2028-03-01T00:00"),
    ("UTC", "month", "2100-02-28T12:00", "2100-02-01T00:00", "2100-03-01T00:00"),
    ("UTC", "month", "2026-12-31T23:00", "2026-12-01T00:00", "2027-01-01T00:00"),
    ("UTC", "year", "2028-12-31T23:59", "2028-01-01T00:00", "2029-01-01T00:00"),
    ("UTC", "year", "2027-01-01T00:00", "2027-01-01T00:00", "2028-01-01T00:00"),
    # before the epoch
    ("UTC", "day", "1969-12-31T23:59:59.999999", "1969-12-31T00:00", "1970-01-01T00:00"),
    ("UTC", "week", "1969-12-28T12:00", "1969-12-22T00:00", "1969-12-29T00:00"),
    ("UTC", "month", "1968-02-29T12:00", "1968-02-01T00:00", "1968-03-01T00:00"),
    ("UTC", "year", "1969-07-20T20:17", "1969-01-01T00:00", "1970-01-01T00:00"),
    # days of 23 and 25 hours
    ("Europe/Paris", "day", "2026-03-29T21:59", "2026-03-28T23:00", "2026-03-29T22:00"),
    ("Europe/Paris", "day", "2026-03-29T22:00", "2026-03-29T22:00", "2026-03-30T22:00"),
    ("Europe/Paris", "day", "2026-10-25T22:30", "2026-10-24T22:00", "2026-10-25T23:00"),
    ("Europe/Paris", "day", "2026-10-25T23:00", "2026-10-25T23:00", "2026-10-26T23:00"),
    ("Europe/Paris", "week", "2026-10-25T12:00", "2026-10-18T22:00", "2026-10-25T23:00"),
    ("Europe/Paris", "month", "2026-10-31T22:59", "2026-09-30T22:00", "2026-10-31T23:00"),
    ("Europe/Paris", "year", "2026-12-31T23:00", "2026-12-31T23:00", "2027-12-31T23:00"),
    # no midnight: 00:00 becomes 01:00
    ("America/Havana", "day", "2026-03-08T12:00", "2026-03-08T05:00", "2026-03-09T04:00"),
    ("Asia/Beirut", "day", "2026-03-29T12:00", "2026-03-28T22:00", "2026-03-29T21:00"),
    ("America/Sao_Paulo", "day", "2018-11-04T12:00", "2018-11-04T03:00", "2018-11-05T02:00"),
    # two midnights: 01:00 becomes 00:00
    ("America/Havana", "day", "2026-11-01T04:30", "2026-11-01T04:00", "2026-11-02T05:00"),
    ("America/Havana", "day", "2026-11-01T05:30", "2026-11-01T04:00", "2026-11-02T05:00"),
    # the last hour of a day comes twice: 00:00 becomes 23:00
    ("Asia/Beirut", "day", "2026-10-24T21:30", "2026-10-23T21:00", "2026-10-24T22:00"),
    ("America/Sao_Paulo", "day", "2018-02-18T02:30", "2018-02-17T02:00", "2018-02-18T03:00"),
    # the last hour of a day comes again after midnight, 00:01 becomes 23:01: that is the new day
    ("America/St_Johns", "day", "2010-11-07T02:29", "2010-11-06T02:30", "2010-11-07T02:30"),
    ("America/St_Johns", "day", "2010-11-07T03:00", "2010-11-07T02:30", "2010-11-08T03:30"),
    # a day that there was not: 29 December is followed by the 31st
    ("Pacific/Apia", "day", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
    ("Pacific/Apia", "day", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
    ("Pacific/Apia", "week", "2011-12-30T10:00", "2011-12-26T10:00", "2012-01-01T10:00"),
]


@pytest.mark.parametrize(("zone", "unit", "now", "start", "end"), CALENDAR)
def test_calendar_window_is_between_midnights_of_the_zone(zone, unit, now, start, end):
    bounds = windows.bounds(unit, instant(now), zoneinfo.ZoneInfo(zone))
    assert bounds == (instant(start), instant(end))


ZONES = sorted({row[0] for row in CALENDAR} | {"America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"})
ANY_TIME = st.tuples(
    st.sampled_from(ZONES), st.integers(instant("1970-01-01"), instant("2100-01-01") - MICROSECONDS)
)
#: Where a random instant would hardly ever be: around the odd ones above.
ODD_TIMES = st.builds(
    lambda row, which, seconds: (row[0], instant(row[which]) + seconds * MICROSECONDS),
    st.sampled_from(CALENDAR),
    st.integers(2, 4),
    st.integers(-7_200, 7_200) | st.integers(-100_000, 100_000),
)


@settings(deadline=None, max_examples=500)
@given(window=st.sampled_from([*CALENDAR_UNITS, 0.5, 60, 604_800]), time=ANY_TIME | ODD_TIMES)
def test_every_instant_lies_in_one_window_that_others_touch_without_a_gap(window, time):
    zone, now = zoneinfo.ZoneInfo(time[0]), time[1]
    start, end = windows.bounds(window, now, zone)
    assert start <= now < end
    assert windows.bounds(window, start, zone) == (start, end)
    assert windows.bounds(window, end - 1, zone) == (start, end)
    assert windows.bounds(window, end, zone)[0] == end
    assert windows.bounds(window, start - 1, zone)[1] == start


@settings(deadline=None)
@given(st.integers(instant("1970-01-01"), instant("2100-01-01")))
def test_seconds_and_microseconds_convert_without_loss(microseconds):
    assert windows.to_microseconds(windows.to_seconds(microseconds)) == microseconds
