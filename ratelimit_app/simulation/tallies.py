"""What is counted of a trial while it runs, in memory that does not grow with the arrivals."""

import collections
import dataclasses
from collections.abc import Sequence

from ratelimit_app import windows
from ratelimit_app.conf import conf
from ratelimit_app.simulation.arrivals import Arrival

#: Refused keys that are counted exactly. Of more than these, the half refused least is forgotten.
_MOST_KEYS = 20_000

#: Steps of a timeline; when they do not reach, each becomes twice as long.
_MOST_STEPS = 512


class Tally:
    """How many calls came, passed and were refused, and the most that passed within a time.

    ``peaks`` are of any span of so many seconds, wherever it starts; ``window_peak`` is of one window
    of the limit, from its edge to the next. Both are of all keys together.
    """

    def __init__(self, window: float | str, spans: Sequence[float]) -> None:
        self.passed = 0
        self.refused = 0
        self.peaks = [Peak(windows.to_microseconds(span)) for span in spans]
        self.window_peak = WindowPeak(window)
        self.refused_keys = RefusedKeys()
        self.timeline = Timeline()

    @property
    def came(self) -> int:
        return self.passed + self.refused

    def add(self, arrival: Arrival, *, passed: bool) -> None:
        """Count an arrival; arrivals come in the order of their times."""
        self.timeline.add(arrival.at, passed=passed)
        if not passed:
            self.refused += 1
            self.refused_keys.add(arrival.key)
            return
        self.passed += 1
        self.window_peak.add(arrival.at)
        for peak in self.peaks:
            peak.add(arrival.at)


class Peak:
    """The most calls in any span of so many microseconds; two that are a whole span apart are in none."""

    def __init__(self, span: int) -> None:
        self.span = span
        self.most = 0
        self._inside = 0
        self._recent: collections.deque[list[int]] = collections.deque()

    def add(self, at: int) -> None:
        recent = self._recent
        while recent and recent[0][0] <= at - self.span:
            self._inside -= recent.popleft()[1]
        if recent and recent[-1][0] == at:
            recent[-1][1] += 1
        else:
            recent.append([at, 1])
        self._inside += 1
        self.most = max(self.most, self._inside)


class WindowPeak:
    """The most calls in one window of a limit."""

    def __init__(self, window: float | str) -> None:
        self.most = 0
        self._window = window
        self._end = 0
        self._inside = 0

    def add(self, at: int) -> None:
        if at >= self._end or not self.most:
            _, self._end = windows.bounds(self._window, at, conf.time_zone)
            self._inside = 0
        self._inside += 1
        self.most = max(self.most, self._inside)


class RefusedKeys:
    """How often each key was refused: exactly, until there are too many; then those refused most."""

    def __init__(self) -> None:
        self.is_exact = True
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, key: str) -> None:
        self._counts[key] += 1
        if len(self._counts) > _MOST_KEYS:
            self._counts = collections.Counter(dict(self._counts.most_common(_MOST_KEYS // 2)))
            self.is_exact = False

    def most_common(self, number: int) -> list[tuple[str, int]]:
        return self._counts.most_common(number)

    def of(self, key: str) -> int:
        return self._counts[key]


@dataclasses.dataclass(slots=True)
class Timeline:
    """Calls passed and refused in each step of time, beginning with the first one's second."""

    start: int = 0
    step: int = windows.MICROSECONDS
    passed: list[int] = dataclasses.field(default_factory=list)
    refused: list[int] = dataclasses.field(default_factory=list)

    def add(self, at: int, *, passed: bool) -> None:
        if not self.passed:
            self.start = at - at % windows.MICROSECONDS
        while (index := (at - self.start) // self.step) >= _MOST_STEPS:
            self.step *= 2
            self.passed, self.refused = _in_pairs(self.passed), _in_pairs(self.refused)
        missing = index + 1 - len(self.passed)
        if missing > 0:
            self.passed += [0] * missing
            self.refused += [0] * missing
        (self.passed if passed else self.refused)[index] += 1


def _in_pairs(counts: list[int]) -> list[int]:
    return [sum(counts[index : index + 2]) for index in range(0, len(counts), 2)]
