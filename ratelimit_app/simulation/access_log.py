"""Access logs of nginx and Apache, in the common and the combined format, as they are read and replayed.

A server writes a line when a request has ended, and Apache dates it by its beginning: lines are put in
order among the next 10,000. One that is later still counts at the instant that was reached by then.
"""

import contextlib
import datetime
import functools
import gzip
import heapq
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ratelimit_app.simulation.progress import Told, Watch
from ratelimit_app.windows import MICROSECONDS

#: Lines that are held back to be put in order.
_HELD = 10_000

#: Bytes of the longest line; what has no end within them is no line of a log.
_LONGEST = 65_536

_BUFFER = 1 << 17
_GZIP = b"\x1f\x8b"
_LINE = re.compile(
    r"(?P<address>\S+) \S+ (?P<user>.+?) \[(?P<date>[^]]{26})\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" [0-9]{3} (?:[0-9]+|-)(?: .*)?'
)
_DATE = re.compile(
    r"([0-9]{2})/([A-Z][a-z]{2})/(19[7-9][0-9]|2[01][0-9]{2}):([0-9]{2}):([0-9]{2}):([0-9]{2}) "
    r"([+-][0-9]{2})([0-9]{2})"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Entry(NamedTuple):
    """A line of a log: an instant in microseconds, and the texts as they are written."""

    at: int
    address: str
    user: str
    request: str


class AccessLog:
    """The entries of a log in the order of their times, and what was found on the way.

    ``is_client`` tells whether a text is the address of a client: a line with another one is bad, too.
    """

    def __init__(self, stream: io.BufferedIOBase, is_client: Callable[[str], bool]) -> None:
        self.good = 0
        self.bad = 0
        self.late = 0
        self.first_bad: tuple[int, str] | None = None
        self._stream = stream
        self._is_client = is_client

    def __iter__(self) -> Iterator[Entry]:
        latest = None
        for entry in _in_order(self._entries()):
            if latest is not None and entry.at < latest:
                self.late += 1
                entry = entry._replace(at=latest)
            latest = entry.at
            yield entry

    def _entries(self) -> Iterator[Entry]:
        for number, line in enumerate(iter(lambda: self._stream.readline(_LONGEST), b""), start=1):
            text = line.rstrip(b"\r\n").decode(errors="backslashreplace")
            try:
                entry = parse(text)
            except ValueError:
                entry = None
            if entry and self._is_client(entry.address):
                self.good += 1
                yield entry
                continue
            self.bad += 1
            self.first_bad = self.first_bad or (number, text[:80])


def parse(line: str) -> Entry:
    """Read a line; raise ``ValueError`` where it is not in the common or the combined format.

    What a log has after the fields of the common format does not matter.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"line: not in the common or the combined format, got {line:.80}")
    return Entry(_instant(match["date"]), match["address"], match["user"], match["request"])


@contextlib.contextmanager
def opened(name: str, watch: Watch) -> Iterator[io.BufferedIOBase]:
    """Open a file (``-``: standard input) for its lines, unpacked if it is gzip, whatever its name.

    ``watch`` is given the size of the file, if it has one, and makes what is told how many bytes are
    read, each time that some are. Raises ``OSError`` where the file cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        if name == "-" and sys.stdin is None:
            raise OSError("there is no standard input")
        raw = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
        size = None if name == "-" else os.fstat(raw.fileno()).st_size or None
        told = stack.enter_context(watch(size))
        buffered = io.BufferedReader(_Told(raw, told), _BUFFER)  # type: ignore[type-var]
        if buffered.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:
            yield stack.enter_context(gzip.GzipFile(fileobj=buffered))
        else:
            yield buffered


class _Told(io.RawIOBase):
    """A stream that tells how much of it is read."""

    def __init__(self, raw: BinaryIO, told: Told) -> None:
        self._raw = raw
        self._told = told

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self._raw.read(len(buffer))
        buffer[: len(data)] = data
        self._told(len(data))
        return len(data)


def _in_order(entries: Iterable[Entry]) -> Iterator[Entry]:
    held: list[tuple[int, int, Entry]] = []
    for number, entry in enumerate(entries):
        if len(held) < _HELD:
            heapq.heappush(held, (entry.at, number, entry))
        else:
            yield heapq.heappushpop(held, (entry.at, number, entry))[2]
    while held:
        yield heapq.heappop(held)[2]


@functools.lru_cache(maxsize=1_000)  # the lines of a second share it
def _instant(date: str) -> int:
    match = _DATE.fullmatch(date)
    if match is None or match[2] not in _MONTHS:
        raise ValueError(f"date: such as 01/Jun/2026:12:00:00 +0000, from 1970 to 2199, got {date!r}")
    day, year, hour, minute, second = (int(match[group]) for group in (1, 3, 4, 5, 6))
    month = _MONTHS.index(match[2]) + 1
    local = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.timezone.utc)
    hours, minutes = int(match[7]), int(match[7][0] + match[8])
    return (int(local.timestamp()) - 60 * (60 * hours + minutes)) * MICROSECONDS
