"""What has happened to the counters in this process, in figures since it began."""

import collections
import threading
from collections.abc import Mapping

_lock = threading.Lock()
_figures: collections.Counter[str] = collections.Counter()


def count(figure: str, number: int = 1) -> None:
    """Add to a figure."""
    with _lock:
        _figures[figure] += number


def read() -> Mapping[str, int]:
    """Return the figures by name.

    ``unanswered`` and ``busy`` are questions that the database did not answer, and that met a lock for too
    long; ``passed_by`` those that were not put to it meanwhile. Of the calls without an answer
    ``allowed`` went through uncounted, ``denied`` did not, and ``local`` were counted in this process.
    """
    names = ("unanswered", "busy", "passed_by", "allowed", "denied", "local")
    with _lock:
        return {name: _figures[name] for name in names}
