"""How the field reports ask: the three entry points, the limit that they share, the instants."""

import datetime

import http_sf
from django.http import HttpResponse
from django.test import Client
from model_bakery import baker

from ratelimit_app.models import Limit
from ratelimit_app.testing import FrozenClock

#: A view that the middleware limits by its path, a decorated one, one of Django REST framework.
ENTRIES = ("/plain", "/decorated", "/drf")

#: Two limits at once, "case" and "other", in each of the three ways.
ENTRIES_WITH_TWO = ("/plain", "/decorated-twice", "/drf-with-two")


def make_limit(rate: str, name: str = "case", path: str = "^/plain", **fields: object) -> Limit:
    """Make the limit that all of the entry points meet: two by its name, one by its path."""
    return baker.make(Limit, name=name, rate=rate, path=path, **fields)


def ask(path: str, times: int, client: Client | None = None, **extra: str) -> list[int]:
    """Ask so many times, one after another; return the status codes."""
    client = client or Client()
    return [client.get(path, **extra).status_code for _ in range(times)]


def field(response: HttpResponse, parameter: str, name: str = "RateLimit") -> int:
    """Return a parameter of the only limit in a response's ``RateLimit`` or ``RateLimit-Policy`` field."""
    [(_, parameters)] = http_sf.parse(response[name].encode(), tltype="list")
    return parameters[parameter]


def instant(text: str) -> float:
    """Return the seconds since the epoch of a time in UTC, such as ``2026-06-01T12:00:59.9``."""
    naive = datetime.datetime.fromisoformat(text if "." not in text else text.ljust(26, "0"))
    return naive.replace(tzinfo=datetime.timezone.utc).timestamp()


def move(clock: FrozenClock, text: str) -> None:
    """Move the clock to a time in UTC."""
    clock.advance(instant(text) - clock.now)
