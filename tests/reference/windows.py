"""Where windows begin and end, by looking for it."""

import datetime
import functools
import zoneinfo

SECOND = 1_000_000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
MINUTE = datetime.timedelta(minutes=1)
DAY = datetime.timedelta(days=1)


def bounds(window, at, zone):
    """Return the window ``[start, end)`` of an instant, all in microseconds since the epoch."""
    if not isinstance(window, str):
        length = round(window * SECOND)
        return at // length * length, (at // length + 1) * length
    today = (EPOCH + datetime.timedelta(microseconds=at)).astimezone(zoneinfo.ZoneInfo(zone)).date()
    # The date may be yesterday's again, if the clocks were put back across midnight.
    first = max(
        first_day(window, day) for day in (today, today + DAY) if begins(first_day(window, day), zone) <= at
    )
    return begins(first, zone), begins(next_first_day(window, first), zone)


@functools.cache
def first_day(window, day):
    while not {
        "day": True,
        "week": day.isoweekday() == 1,
        "month": day.day == 1,
        "year": (day.month, day.day) == (1, 1),
    }[window]:
        day -= DAY
    return day


@functools.cache
def next_first_day(window, first):
    day = first + DAY
    while first_day(window, day) == first:
        day += DAY
    return day


@functools.cache
def begins(day, zone):
    """Return the first instant at which it is that day or a later one, looked for minute by minute."""
    zone = zoneinfo.ZoneInfo(zone)
    moment = datetime.datetime.combine(day, datetime.time(), tzinfo=datetime.timezone.utc) - DAY
    while moment.astimezone(zone).date() < day:
        moment += MINUTE
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)
