"""The text that a counter is stored under: exact, bounded, printable ASCII."""

import functools
import re
import urllib.parse

from ratelimit_app.hashing import keyed_hash

#: Four parts, three colons, within the 255 characters of the column.
_LONGEST = {"space": 80, "key": 100}

_PRINTABLE = re.compile(r"[!-~]*")


def row_key(space: str, algorithm: str, window: str, key: str) -> str:
    """Join what tells counters apart; no two different lists of parts have the same text.

    ``space`` is the limit's own, ``window`` its window as one word. A ``key`` that is long or has
    anything but printable ASCII is stored as a keyed hash behind a ``#``.
    """
    return f"{_space(space)}:{algorithm}:{window}:{_key(key)}"


def _space(space: str) -> str:
    # No colon is left in it: the first three of the whole are those between the parts.
    quoted = _quote(space)
    return quoted if len(quoted) <= _LONGEST["space"] else "#" + keyed_hash(space)


@functools.lru_cache(maxsize=1_000)
def _quote(space: str) -> str:
    return urllib.parse.quote(space, safe="@")


def _key(key: str) -> str:
    if len(key) <= _LONGEST["key"] and _PRINTABLE.fullmatch(key) and not key.startswith("#"):
        return key
    return "#" + keyed_hash(key)
