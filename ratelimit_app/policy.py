"""What a limit promises: so many units per window, counted by one algorithm."""

import dataclasses
import re

from ratelimit_app import algorithms
from ratelimit_app.windows import CALENDAR_UNITS, MICROSECONDS

#: The largest Integer of a structured field (RFC 9651, section 3.3.1): a quota goes out in one.
MAX_QUOTA = 999_999_999_999_999

#: A hundred years, in seconds. Twice as far ahead still fits 64 bits of nanoseconds.
MAX_WINDOW = 3_155_760_000

MAX_NAME_LENGTH = 64

_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600),
    **dict.fromkeys(("d", "day", "days"), 86_400),
    **dict.fromkeys(("w", "week", "weeks"), 604_800),
}
_CALENDAR = {
    "calendar day": "day",
    "calendar week": "week",
    **dict.fromkeys(("month", "calendar month"), "month"),
    **dict.fromkeys(("year", "calendar year"), "year"),
}
_RATE = re.compile(
    r"(?P<quota>[0-9]{1,15})(?: */ *| +per +)(?P<times>[0-9]{1,10})? *(?P<unit>[a-z]+(?: [a-z]+)?)"
)
_NAME = re.compile(rf"[ -~]{{1,{MAX_NAME_LENGTH}}}")


@dataclasses.dataclass(frozen=True, slots=True)
class Policy:
    """A quota of units per window (a "quota policy" in the IETF's RateLimit fields).

    ``name`` is 1 to 64 printable ASCII characters; policies of different names never share a
    counter. ``algorithm`` is the name of a module in ``ratelimit_app.algorithms``. ``quota`` is a
    whole number of units from 1 to 999,999,999,999,999. ``window`` is a number of seconds (from
    a microsecond to a hundred years) or a calendar unit: ``day``, ``week``, ``month``, ``year``.
    ``burst`` is the capacity in units for the algorithms that have one, ``None`` meaning the quota.

    Raises ``ValueError`` for anything else.
    """

    name: str
    algorithm: str
    quota: int
    window: float | str
    burst: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"name: 1 to {MAX_NAME_LENGTH} printable ASCII characters, got {self.name!r}")
        check_units("quota", self.quota)
        if self.burst is not None:
            check_units("burst", self.burst)
        _check_window(self.window)
        if not isinstance(self.algorithm, str):
            raise ValueError(f"algorithm: one of {', '.join(algorithms.names())}, got {self.algorithm!r}")
        algorithms.load(self.algorithm).check(self)

    @classmethod
    def parse(
        cls,
        rate: str,
        *,
        name: str | None = None,
        algorithm: str = "fixed_window",
        burst: int | None = None,
    ) -> "Policy":
        """Read a rate such as ``5/s``, ``100/10s``, ``10 per 2 minutes`` or ``3/month``.

        Seconds, minutes, hours, days and weeks are fixed lengths, aligned to the Unix epoch.
        ``month``, ``year``, ``calendar day`` and ``calendar week`` are calendar windows, of which
        there is no multiple. ``name`` defaults to the rate as written.

        Raises ``ValueError`` on anything that it does not understand whole.
        """
        match = _RATE.fullmatch(rate.strip(" ")) if isinstance(rate, str) else None
        if match is None:
            raise ValueError(f"rate: a number per time such as '5/m' or '100 per 10 minutes', got {rate!r}")
        window = _window(rate, match["times"], match["unit"])
        return cls(rate.strip(" ") if name is None else name, algorithm, int(match["quota"]), window, burst)

    @property
    def window_text(self) -> str:
        """The window as one word, ``60`` (seconds) or ``month``."""
        if isinstance(self.window, str):
            return self.window
        return str(int(self.window) if self.window == int(self.window) else self.window)


def check_units(field: str, value: object) -> None:
    """Raise ``ValueError`` unless a value is a whole number of units that a quota may have."""
    if type(value) is not int or not 1 <= value <= MAX_QUOTA:
        raise ValueError(f"{field}: a whole number from 1 to {MAX_QUOTA:,}, got {_shown(value)}")


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of very many digits"


def _check_window(window: object) -> None:
    if isinstance(window, str):
        if window not in CALENDAR_UNITS:
            raise ValueError(f"window: seconds or one of {', '.join(CALENDAR_UNITS)}, got {window!r}")
        return
    if isinstance(window, bool) or not isinstance(window, int | float):
        raise ValueError(f"window: a number of seconds, got {window!r}")
    if not 1 / MICROSECONDS <= window <= MAX_WINDOW:
        raise ValueError(f"window: from 0.000001 to {MAX_WINDOW:,} seconds, got {_shown(window)}")


def _window(rate: str, times: str | None, unit: str) -> float | str:
    if unit in _SECONDS:
        return _SECONDS[unit] * int(times or 1)
    if unit in _CALENDAR and times is None:
        return _CALENDAR[unit]
    if unit in _CALENDAR:
        raise ValueError(f"rate: a calendar {_CALENDAR[unit]} has no multiple, got {rate!r}")
    raise ValueError(f"rate: unknown unit {unit!r} in {rate!r} (have: {', '.join([*_SECONDS, *_CALENDAR])})")
