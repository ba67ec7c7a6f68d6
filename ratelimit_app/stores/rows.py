"""What callers and stores tell each other about rows."""

import dataclasses

from ratelimit_app.algorithms import MAX_COUNT, Logged, Weighed


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Row:
    """Which counter: its primary key. Rows sort in the order in which they are locked."""

    key: str
    window_start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Advance:
    """Move one counter: ``count = max(count, floor) + amount``, only if that is at most ``ceiling``.

    The part of a ``weighed`` row that still counts comes on top of it. Where it is ``logged``, the
    count is what the entries of the log add up to that have not expired. With ``count_denied`` the row
    moves past the ceiling too, to ``most`` at most.
    """

    row: Row
    floor: int
    amount: int
    ceiling: int
    expires_at: int
    count_denied: bool = False
    weighed: Weighed | None = None
    logged: Logged | None = None
    most: int = MAX_COUNT

    @property
    def first(self) -> int:
        """The count of a row that this advance begins."""
        return self.floor + self.amount

    @property
    def highest(self) -> int:
        """The count that the row may be moved to at most."""
        return self.most if self.count_denied else self.ceiling

    @property
    def head(self) -> "Advance":
        """The advance of the row that heads a log: it holds the running total, and is locked by it."""
        if not self.logged:
            return self
        return dataclasses.replace(self, ceiling=MAX_COUNT, logged=None, count_denied=False)

    @property
    def params(self) -> dict[str, str | int]:
        """All of it, as the parameters of a statement."""
        weighed = self.weighed or Weighed(0, 0, 1)
        return {
            "key": self.row.key,
            "window_start": self.row.window_start,
            "first": self.first,
            "expires_at": self.expires_at,
            "floor": self.floor,
            "amount": self.amount,
            "highest": self.highest,
            "weighed_start": weighed.window_start,
            "weight": weighed.weight,
            "scale": weighed.scale,
        }

    @property
    def step(self) -> dict[str, str | int | None]:
        """All of it, as a step of the function that PostgreSQL has."""
        return {
            **self.params,
            "ceiling": self.ceiling,
            "weighed_start": self.weighed.window_start if self.weighed else None,
            "most": self.most,
            "count_denied": self.count_denied,
            "now": self.logged.now if self.logged else None,
            "logged_until": self.logged.expires_at if self.logged else None,
            "is_held": self.logged.is_held if self.logged else False,
        }

    @property
    def weighed_row(self) -> Row | None:
        return Row(self.row.key, self.weighed.window_start) if self.weighed else None

    def fits(self, count: int, weighed: int = 0) -> bool:
        """Tell whether a row that holds ``count`` has room for this, beside a weighed row of that count."""
        return self.holds(max(count, self.floor) + self.amount, weighed)

    def holds(self, count: int, weighed: int = 0) -> bool:
        """Tell whether ``count``, beside a weighed row of that count, is within the ceiling."""
        part = self.weighed.part(weighed) if self.weighed else 0
        return count + part <= self.ceiling


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the amount fitted, and the count of the row after the step.

    Among several, one that did not fit keeps the others from being moved: their counts are then
    the ones that were met. ``weighed`` is the count of a weighed row. ``empty_at``, ``room_at`` and
    ``more_at`` are the instants at which a log will be empty, will have room for what was refused, and
    will have room for more than now (0: all of it is there).
    """

    fits: bool
    count: int
    weighed: int = 0
    empty_at: int = 0
    room_at: int = 0
    more_at: int = 0
    entry: int = 0
