"""The log of a key in memory: what ``logs.py`` keeps in a table, in two columns."""

import bisect
from array import array

#: Entries that have been pruned are given back when they are this many, and half of all.
_SLACK = 64


class Log:
    """Running totals of units, and the instants at which their entries expire; both only ever grow.

    To add, to look and to prune is a search by halves, however long the log.
    """

    __slots__ = ("_before", "_expiries", "_first", "_totals")

    def __init__(self) -> None:
        self._totals = array("q")
        self._expiries = array("q")
        self._first = 0  # entries before this one are pruned
        self._before = 0  # the total before it

    def __len__(self) -> int:
        return len(self._totals) - self._first

    @property
    def total(self) -> int:
        """All units that were ever added."""
        return self._totals[-1] if len(self) else self._before

    @property
    def oldest_expiry(self) -> int:
        """The instant at which the first entry expires; there must be one."""
        return self._expiries[self._first]

    def used(self, now: int) -> int:
        """Return the units whose entries have not expired."""
        return self.total - self._total_before(self._first_live(now))

    def empty_at(self, now: int) -> int:
        """Return when the last entry expires, 0 if it has."""
        return self._expiries[-1] if len(self) and self._expiries[-1] > now else 0

    def reached_at(self, total: int) -> int:
        """Return when the entry expires by which a total was reached, 0 if there is none."""
        index = bisect.bisect_left(self._totals, total, self._first)
        return self._expiries[index] if index < len(self._totals) else 0

    def expired(self, now: int) -> int:
        """Count the entries that have expired."""
        return self._first_live(now) - self._first

    def freed_at(self, units: int, now: int) -> int:
        """Return when so many of the units that still count will have expired, 0 if there are not so many."""
        return self.reached_at(self.total - self.used(now) + units)

    def add(self, units: int, expires_at: int) -> int:
        """Add an entry; return the total. Entries expire in their order, though the clock may step back."""
        last = self._expiries[-1] if len(self) else expires_at  # what is pruned is no more
        self._totals.append(self.total + units)
        self._expiries.append(max(expires_at, last))
        return self.total

    def take_off(self, units: int, now: int, until: int) -> None:
        """Take units off the newest entries that expire by ``until``, down to none that still counts."""
        end = bisect.bisect_right(self._expiries, until, self._first)
        reached = self._total_before(end)
        taken = min(units, reached - self._total_before(self._first_live(now)))
        if taken <= 0:
            return
        left = reached - taken
        index = bisect.bisect_right(self._totals, left, self._first, end)
        if self._total_before(index) < left:
            self._totals[index] = left
            index += 1
        del self._totals[index:end], self._expiries[index:end]
        for later in range(index, len(self._totals)):
            self._totals[later] -= taken

    def prune(self, now: int, most: int) -> int:
        """Forget at most so many entries that have expired; return how many."""
        pruned = min(self.expired(now), most)
        self._before = self._total_before(self._first + pruned)
        self._first += pruned
        if self._first > max(_SLACK, len(self)):
            del self._totals[: self._first], self._expiries[: self._first]
            self._first = 0
        return pruned

    def _first_live(self, now: int) -> int:
        return bisect.bisect_right(self._expiries, now, self._first)

    def _total_before(self, index: int) -> int:
        return self._totals[index - 1] if index > self._first else self._before


class Holdings:
    """What is held at the moment: entries by their number, each until it expires or is given back."""

    __slots__ = ("_entries", "_total")

    def __init__(self) -> None:
        self._entries: dict[int, tuple[int, int]] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def oldest_expiry(self) -> int:
        """The instant at which the first entry expires; there must be one."""
        return min(expires_at for expires_at, _ in self._entries.values())

    def used(self, now: int) -> int:
        """Return the units whose entries have not expired."""
        return sum(units for expires_at, units in self._entries.values() if expires_at > now)

    def empty_at(self, now: int) -> int:
        """Return when the last entry expires, 0 if it has."""
        return max((expires_at for expires_at, _ in self._entries.values() if expires_at > now), default=0)

    def freed_at(self, units: int, now: int) -> int:
        """Return when so many of the units that still count will have expired, 0 if there are not so many."""
        for expires_at, freed in sorted(self._entries.values()):
            units -= freed if expires_at > now else 0
            if units <= 0:
                return expires_at
        return 0

    def expired(self, now: int) -> int:
        """Count the entries that have expired."""
        return sum(expires_at <= now for expires_at, _ in self._entries.values())

    def add(self, units: int, expires_at: int) -> int:
        """Add an entry; return its number."""
        self._total += units
        self._entries[self._total] = expires_at, units
        return self._total

    def give_back(self, entry: int, expires_at: int) -> None:
        """Take an entry out, if it is there, and not another one of its number."""
        if self._entries.get(entry, (None, 0))[0] == expires_at:
            del self._entries[entry]

    def prune(self, now: int, most: int) -> int:
        """Forget at most so many entries that have expired; return how many."""
        expired = [entry for entry, (expires_at, _) in self._entries.items() if expires_at <= now][:most]
        for entry in expired:
            del self._entries[entry]
        return len(expired)
