"""Where a window starts and ends, for windows of so many seconds and for calendar windows."""

import datetime

CALENDAR_UNITS = ("day", "week", "month", "year")

#: Every instant of this app is a whole number of these since the Unix epoch.
MICROSECONDS = 1_000_000

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)


def bounds(window: float | str, now: int, zone: datetime.tzinfo) -> tuple[int, int]:
    """Find the window ``[start, end)`` that an instant lies in.

    ``window`` is a length in seconds (windows are then aligned to the Unix epoch) or one of
    ``day``, ``week``, ``month``, ``year`` (they then begin at midnight in ``zone``, weeks on
    Monday). ``now`` and both results are integer microseconds since the epoch.
    """
    if isinstance(window, str):
        return _calendar_bounds(window, now, zone)
    length = to_microseconds(window)
    start = now - now % length
    return start, start + length


def to_microseconds(seconds: float) -> int:
    """Convert seconds to the nearest whole number of microseconds."""
    return round(seconds * MICROSECONDS)


def to_seconds(microseconds: int) -> float:
    """Convert microseconds to seconds."""
    return microseconds / MICROSECONDS


def to_datetime(instant: int) -> datetime.datetime:
    """Convert an instant to a date-time in UTC; raise ``OverflowError`` beyond the years 1 to 9999."""
    return _EPOCH + instant * _MICROSECOND


def _calendar_bounds(unit: str, now: int, zone: datetime.tzinfo) -> tuple[int, int]:
    today = to_datetime(now).astimezone(zone).date()
    first = _first_day(unit, today)
    following = _following(unit, first)
    start, end = _midnight(first, zone), _midnight(following, zone)
    if now < end:
        return start, end
    # The clocks were put back across midnight, and it is the old date again: the new window goes on.
    return end, _midnight(_following(unit, following), zone)


def _following(unit: str, first: datetime.date) -> datetime.date:
    # 32 days are past the end of any month, 366 past that of any year.
    beyond = first + datetime.timedelta(days={"day": 1, "week": 7, "month": 32, "year": 366}[unit])
    return _first_day(unit, beyond)


def _first_day(unit: str, day: datetime.date) -> datetime.date:
    if unit == "year":
        return day.replace(month=1, day=1)
    if unit == "month":
        return day.replace(day=1)
    if unit == "week":
        return day - datetime.timedelta(days=day.weekday())
    return day


def _midnight(day: datetime.date, zone: datetime.tzinfo) -> int:
    # Where the clocks are put forward at midnight, 00:00 does not exist; ``fold=0`` then reads
    # it with the old offset, which is the very instant of the change. Where 00:00 happens
    # twice, it is the first of the two.
    local = datetime.datetime.combine(day, datetime.time(), tzinfo=zone)
    return (local - _EPOCH) // _MICROSECOND
