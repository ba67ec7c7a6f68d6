"""Whose limit it is at the demo's endpoints: key functions of a project's own."""

import re
import unicodedata

from django.http import HttpRequest

from ratelimit_app import keys
from ratelimit_app.hashing import keyed_hash

_CLIENT_ID = re.compile(r"[A-Za-z0-9-]{1,40}")


def client_key(request: HttpRequest) -> str:
    """Return the key of the caller of ``/ping``; those who send none share that of 127.0.0.1."""
    return hashed_client_key(request.headers.get("X-Client-Key"))


def hashed_client_key(sent: str | None) -> str:
    """Return the key for what a client sent as its own, which may be a secret: never as it is."""
    return f"client:{keyed_hash(sent or '127.0.0.1')}"


def client_id(request: HttpRequest) -> str | None:
    """Return the key of the caller of ``/work``, ``None`` if the client id is not valid."""
    sent = request.headers.get("X-Client-ID", "")
    return f"client:{sent}" if _CLIENT_ID.fullmatch(sent) else None


def tried_name(request: HttpRequest) -> str:
    """Return the key of a log-in attempt: the name that is tried, in any spelling, and the address.

    The name is never stored as it is: it may be a password that was typed into the wrong field.
    """
    name = unicodedata.normalize("NFKC", request.POST.get("username", "")).strip().casefold()
    return f"{keyed_hash(name)}:{keys.ip(request)}"
