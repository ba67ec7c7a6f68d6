"""Who a line of a log is: from its entry to an arrival, by the same keys as a request has."""

import functools
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

from ratelimit_app import keys
from ratelimit_app.limits import LiveLimit
from ratelimit_app.simulation.access_log import Entry
from ratelimit_app.simulation.arrivals import Arrival


def arrivals(entries: Iterable[Entry], by: str, limit: LiveLimit | None) -> Iterator[Arrival]:
    """Make arrivals of the entries that a limit applies to, by its path and methods; of all without one."""
    key = KEYS[by]
    for entry in entries:
        if limit is None or _applies(limit, *_method_and_path(entry)):
            yield Arrival(entry.at, key(entry))


def is_client(address: str) -> bool:
    """Tell whether a text is an address."""
    return _ip(address) is not None


def by_key_of(limit: LiveLimit) -> str | None:
    """Return which of ``KEYS`` counts as a limit does; ``None`` if its key cannot be told from a log."""
    told: dict[keys.KeyFunction, str] = {keys.ip: "ip", keys.user: "user", keys.everyone: "global"}
    return told.get(limit.key)


def _by_ip(entry: Entry) -> str:
    return f"ip:{_ip(entry.address)}"


def _by_user(entry: Entry) -> str:
    return _by_ip(entry) if entry.user in ("-", '""') else f"user:{entry.user}"


def _by_path(entry: Entry) -> str:
    return f"path:{_method_and_path(entry)[1]}"


def _for_everyone(entry: Entry) -> str:
    return "global"


#: What ``--by`` counts by. As in a request, who has no account counts by address.
KEYS: dict[str, Callable[[Entry], str]] = {
    "ip": _by_ip,
    "user": _by_user,
    "path": _by_path,
    "global": _for_everyone,
}


@functools.lru_cache(maxsize=50_000)
def _ip(address: str) -> str | None:
    try:
        return keys.client(address)
    except ValueError:
        return None


def _method_and_path(entry: Entry) -> tuple[str, str]:
    method, _, rest = entry.request.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    return method, urllib.parse.unquote(path)


def _applies(limit: LiveLimit, method: str, path: str) -> bool:
    return limit.takes(method) and (limit.path is None or bool(limit.path.search(path)))
