"""What callers and stores tell each other about rows."""

import dataclasses

#: No count grows past this: two of them still add up within the 64 bits of a column.
MAX_COUNT = 2**62 - 1


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Row:
    """Which counter: its primary key. Rows sort in the order in which they are locked."""

    key: str
    window_start: int


@dataclasses.dataclass(frozen=True, slots=True)
class Advance:
    """Move one counter: ``count = max(count, floor) + amount``, only if that is at most ``ceiling``.

    With ``count_denied`` the row moves past the ceiling too.
    """

    row: Row
    floor: int
    amount: int
    ceiling: int
    expires_at: int
    count_denied: bool = False

    @property
    def first(self) -> int:
        """The count of a row that this advance begins."""
        return self.floor + self.amount

    @property
    def highest(self) -> int:
        """The count that the row may be moved to at most."""
        return MAX_COUNT if self.count_denied else self.ceiling

    @property
    def params(self) -> dict[str, str | int]:
        """All of it, as the parameters of a statement."""
        return {
            "key": self.row.key,
            "window_start": self.row.window_start,
            "first": self.first,
            "expires_at": self.expires_at,
            "floor": self.floor,
            "amount": self.amount,
            "highest": self.highest,
        }

    def fits(self, count: int) -> bool:
        """Tell whether a row that holds ``count`` has room for this."""
        return max(count, self.floor) + self.amount <= self.ceiling


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the amount fitted, and the count of the row after the step.

    Among several, one that did not fit keeps the others from being moved: their counts are then
    the ones that were met.
    """

    fits: bool
    count: int
