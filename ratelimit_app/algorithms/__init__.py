"""Ways of counting: each is a pure module that plans one row change and judges what came of it.

An algorithm is a module in this folder, found by its name, with four functions:

``check(policy)``
    raises ``ValueError`` where the policy asks for what the algorithm does not have;
``span(policy, now, zone)``
    the row that an instant belongs to, as a ``Span``;
``plan(policy, span, cost, now)``
    the row change that takes ``cost`` units, as a ``Plan``;
``judge(policy, span, cost, now, state)``
    what rows that hold a ``State`` mean for a call of that cost, as a ``Verdict``.

One with ``HOLDS = True`` has what it takes given back when the caller leaves.

``now`` and every instant are integer microseconds since the Unix epoch, ``zone`` is the time zone
of calendar windows. Nothing here reads a clock, a setting or a database.
"""

import dataclasses
import datetime
import functools
import importlib
import pkgutil
import typing

from ratelimit_app.windows import MICROSECONDS

if typing.TYPE_CHECKING:
    from ratelimit_app.policy import Policy


#: No count grows past this: two of them still add up within the 64 bits of a column.
MAX_COUNT = 2**62 - 1

#: ``expires_at`` is indexed: in a row that changes with every call it moves in steps of a minute, so
#: that most calls leave it alone.
_EXPIRY_STEP = 60 * MICROSECONDS


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Which row an instant belongs to: its ``window_start``, its end, and when it may be pruned."""

    start: int
    end: int
    expires_at: int

    @property
    def length(self) -> int:
        """The window's length in microseconds."""
        return self.end - self.start


@dataclasses.dataclass(frozen=True, slots=True)
class Weighed:
    """Another row of the same key, of whose count ``weight / scale`` still counts, rounded up."""

    window_start: int
    weight: int
    scale: int

    def part(self, count: int) -> int:
        """Return the part of a count that still counts."""
        return -(-count * self.weight // self.scale)


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """Each amount that is taken is an entry of a log, too: it counts until the entry has expired.

    What is only held counts until the entry is given back, by the number ``entry`` and its expiry, or
    has expired.
    """

    now: int
    expires_at: int
    is_held: bool = False
    entry: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """One conditional row change.

    ``count`` becomes ``max(count, floor) + amount``, only if that, with the part of the ``weighed``
    row that still counts, is at most ``ceiling``; otherwise the row stays as it is. Where it is
    ``logged``, ``count`` is what the entries that have not expired add up to. A limit that counts
    refused calls too counts until the row holds ``most``.
    """

    floor: int
    amount: int
    ceiling: int
    weighed: Weighed | None = None
    logged: Logged | None = None
    most: int = MAX_COUNT


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What the rows hold: the count of the span's own row, and that of the weighed one.

    Of a log also the instants at which it will be empty (0 if it is), at which enough of it will have
    expired for the plan's amount (0 if it has, or never will), and at which more units can be had than
    now (0 if all can).
    """

    count: int
    weighed: int = 0
    empty_at: int = 0
    room_at: int = 0
    more_at: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What a row means: units used and left, and the microseconds to wait.

    ``reset_after`` is until the full quota is there again, ``retry_after`` until the cost fits:
    0 when it fits now, ``None`` when it never will. ``more_after`` is until more than ``remaining`` units
    can be had, ``None`` where there never will be more: all are there.
    """

    used: int
    remaining: int
    reset_after: int
    retry_after: int | None
    more_after: int | None


class Algorithm(typing.Protocol):
    """The functions that a module in this folder has."""

    def check(self, policy: "Policy", /) -> None: ...

    def span(self, policy: "Policy", now: int, zone: datetime.tzinfo, /) -> Span: ...

    def plan(self, policy: "Policy", span: Span, cost: int, now: int, /) -> Plan: ...

    def judge(self, policy: "Policy", span: Span, cost: int, now: int, state: State, /) -> Verdict: ...


def check_one_length(policy: "Policy", what: str) -> None:
    """Raise ``ValueError`` where a policy has a calendar window; ``what`` is the way of counting."""
    if isinstance(policy.window, str):
        raise ValueError(f"rate: {what} has one length, a calendar {policy.window} has not")


def check_no_burst(policy: "Policy", what: str) -> None:
    """Raise ``ValueError`` where a policy has a burst; ``what`` is the way of counting."""
    if policy.burst is not None:
        raise ValueError(f"burst: {what} has none, its quota is its burst; got {policy.burst!r}")


def kept_until(instant: int) -> int:
    """Return when a row may be pruned that is needed until an instant, and changes with every call."""
    return (instant // _EXPIRY_STEP + 1) * _EXPIRY_STEP


def names() -> list[str]:
    """List the algorithms: the names of the modules in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def holds(name: str) -> bool:
    """Tell whether what an algorithm takes is only held, until the caller leaves."""
    return getattr(load(name), "HOLDS", False)


@functools.cache
def load(name: str) -> Algorithm:
    """Return the algorithm of that name; raise ``ValueError`` where there is none."""
    if name not in names():
        raise ValueError(f"algorithm: unknown {name!r} (have: {', '.join(names())})")
    return typing.cast(Algorithm, importlib.import_module(f"{__name__}.{name}"))
