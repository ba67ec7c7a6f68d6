"""Counters in the memory of this process: what the database stores do, without a database."""

import heapq
import sys
import threading
from collections.abc import Sequence

from ratelimit_app.algorithms import Logged
from ratelimit_app.stores.memory_log import Holdings, Log
from ratelimit_app.stores.rows import Advance, Outcome, Row


class _Counter:
    __slots__ = ("count", "due", "expires_at", "log")

    def __init__(self, log: Log | Holdings | None) -> None:
        self.count = 0
        self.expires_at = 0
        self.log = log
        self.due = sys.maxsize  # when the heap looks at it

    @property
    def next_due(self) -> int:
        return self.log.oldest_expiry if self.log else self.expires_at


class MemoryStore:
    """Counters that live as long as this object. Threads may share it: it does one thing at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[int, _Counter]] = {}
        #: When to look at a counter again, to prune it. What is no longer so is passed over.
        self._due: list[tuple[int, str, int]] = []

    def advance_all(self, advances: Sequence[Advance]) -> list[Outcome]:
        """Move all of the counters or none of them; return an outcome for each, in the order given."""
        with self._lock:
            met = [self._meet(advance) for advance in advances]
            if all(outcome.fits for outcome in met):
                return [self._move(*pair) for pair in zip(advances, met, strict=True)]
            return [
                self._move(advance, outcome) if advance.count_denied and not outcome.fits else outcome
                for advance, outcome in zip(advances, met, strict=True)
            ]

    def advance(self, advance: Advance) -> Outcome:
        """Move one counter."""
        return self.advance_all([advance])[0]

    def look(self, advances: Sequence[Advance]) -> dict[Row, Outcome]:
        """Tell which of the counters could be moved as they are. Changes nothing."""
        with self._lock:
            return {advance.row: self._meet(advance) for advance in advances}

    def refund(self, advance: Advance) -> None:
        """Take the amount of an advance off its counter, down to 0."""
        with self._lock:
            counter = self._find(advance.row)
            if counter is None:
                return
            if isinstance(counter.log, Holdings) and advance.logged:
                counter.log.give_back(advance.logged.entry, advance.logged.expires_at)
            elif isinstance(counter.log, Log) and advance.logged:
                counter.log.take_off(advance.amount, advance.logged.now, advance.logged.expires_at)
            else:
                counter.count = max(0, counter.count - advance.amount)

    def reset(self, key: str) -> None:
        """Forget all counters of a stored key."""
        with self._lock:
            self._counters.pop(key, None)

    def count_expired(self, now: int) -> int:
        """Count the rows that pruning would delete at an instant; an entry of a log is a row too."""
        with self._lock:
            return sum(
                (counter.log.expired(now) if counter.log else 0) + (counter.expires_at <= now)
                for windows in self._counters.values()
                for counter in windows.values()
            )

    def prune(self, now: int, batch_size: int) -> int:
        """Forget at most so many rows that have expired by an instant; return how many.

        Where none has, that costs next to nothing, however many rows there are.
        """
        pruned = 0
        with self._lock:
            while pruned < batch_size and self._due and self._due[0][0] <= now:
                due, key, window_start = heapq.heappop(self._due)
                row = Row(key, window_start)
                counter = self._find(row)
                if counter and counter.due == due:
                    pruned += self._prune(row, counter, now, batch_size - pruned)
        return pruned

    # With the lock held -------------------------------------------------------------------------

    def _find(self, row: Row) -> _Counter | None:
        return self._counters.get(row.key, {}).get(row.window_start)

    def _count(self, row: Row | None) -> int:
        counter = self._find(row) if row else None
        return counter.count if counter else 0

    def _meet(self, advance: Advance) -> Outcome:
        if advance.logged:
            return self._meet_log(advance, advance.logged)
        count, weighed = self._count(advance.row), self._count(advance.weighed_row)
        return Outcome(advance.fits(count, weighed), count, weighed)

    def _meet_log(self, advance: Advance, logged: Logged) -> Outcome:
        counter = self._find(advance.row)
        log = counter.log if counter else None
        if log is None:
            return Outcome(advance.fits(0), 0)
        return _outcome(log, advance, logged, fits=advance.fits(log.used(logged.now)))

    def _move(self, advance: Advance, met: Outcome) -> Outcome:
        part = advance.weighed.part(met.weighed) if advance.weighed else 0
        count = max(met.count, advance.floor) + advance.amount
        if count + part > advance.highest:
            return met
        counter = self._touch(advance)
        if advance.logged and counter.log is not None:
            entry = counter.log.add(advance.amount, advance.logged.expires_at)
            outcome = _outcome(counter.log, advance, advance.logged, fits=met.fits, entry=entry)
        else:
            counter.count = count
            outcome = Outcome(met.fits, count, met.weighed)
        self._watch(advance.row, counter)
        return outcome

    def _touch(self, advance: Advance) -> _Counter:
        windows = self._counters.setdefault(advance.row.key, {})
        counter = windows.get(advance.row.window_start)
        if counter is None:
            counter = windows[advance.row.window_start] = _Counter(_log_for(advance.logged))
        counter.expires_at = max(counter.expires_at, advance.expires_at)
        return counter

    def _watch(self, row: Row, counter: _Counter) -> None:
        if counter.next_due < counter.due:
            counter.due = counter.next_due
            heapq.heappush(self._due, (counter.due, row.key, row.window_start))

    def _prune(self, row: Row, counter: _Counter, now: int, most: int) -> int:
        pruned = counter.log.prune(now, most) if counter.log else 0
        if counter.next_due <= now and pruned < most:
            windows = self._counters[row.key]
            del windows[row.window_start]
            if not windows:
                del self._counters[row.key]
            return pruned + 1
        counter.due = sys.maxsize
        self._watch(row, counter)
        return pruned


def _outcome(log: Log | Holdings, advance: Advance, logged: Logged, *, fits: bool, entry: int = 0) -> Outcome:
    used = log.used(logged.now)
    return Outcome(
        fits,
        used,
        empty_at=log.empty_at(logged.now),
        room_at=0 if fits else log.freed_at(used + advance.amount - advance.ceiling, logged.now),
        more_at=log.freed_at(max(1, used + 1 - advance.ceiling), logged.now),
        entry=entry if fits and logged.is_held else 0,
    )


def _log_for(logged: Logged | None) -> Log | Holdings | None:
    if logged is None:
        return None
    return Holdings() if logged.is_held else Log()
