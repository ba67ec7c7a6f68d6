"""Keys by what a request says of its caller; by address where it does not say."""

import logging
import uuid
from typing import Any

from django.contrib.sessions.backends.signed_cookies import SessionStore as SignedCookies
from django.http import HttpRequest

from ratelimit_app.hashing import keyed_hash
from ratelimit_app.keys.addresses import ip
from ratelimit_app.reporting import report

#: The words before an API token in ``Authorization``: REST framework's own, and that of OAuth.
_SCHEMES = ("token", "bearer")


def user(request: HttpRequest) -> str:
    """Count by account; who is not logged in counts by address."""
    try:
        account = _attribute(request, "user")
        if account is not None and account.is_authenticated:
            return f"user:{account.pk}"
    except Exception as error:  # reading a session whose id was made up, say
        _report_untold("account", error)
    return ip(request)


def session(request: HttpRequest) -> str:
    """Count by session, kept only as a keyed hash; who has none counts by address, and gets none.

    A made-up id is no session. Neither is one in signed cookies: it has no id that stays.
    """
    try:
        found = _attribute(request, "session")
        if found is not None and not isinstance(found, SignedCookies):
            found.keys()  # reads it, after which an id that there is not is forgotten
            if found.session_key:
                return f"session:{keyed_hash(found.session_key)}"
    except Exception as error:  # a store of sessions may fail in any way
        _report_untold("session", error)
    return ip(request)


def token(request: HttpRequest) -> str:
    """Count by the token after ``Token`` or ``Bearer`` in ``Authorization``, kept only as a keyed hash.

    Without such a token, by address. Whether it is a good one is for the view to find out.
    """
    words = request.headers.get("Authorization", "").split()
    if len(words) != 2 or words[0].lower() not in _SCHEMES:
        return ip(request)
    return f"token:{keyed_hash(words[1])}"


def header(name: str, request: HttpRequest) -> str:
    """Count by the value of a header, kept only as a keyed hash; without the header, by address."""
    value = request.headers.get(name)
    if not value:
        return ip(request)
    return f"header:{name.lower()}:{keyed_hash(value)}"


def path(name: str, request: HttpRequest) -> str:
    """Count by a parameter of the URL, as the route has converted it; on a route without it, by address.

    Only a text, a whole number or a UUID has a text that stays.
    """
    match = request.resolver_match
    value = match.kwargs.get(name) if match else None
    if value == "" or not isinstance(value, str | int | uuid.UUID):
        return ip(request)
    return f"path:{name}:{value}"


def _report_untold(what: str, error: Exception) -> None:
    """Report an error by its kind alone: its text may hold the id of a session, which lets anybody in."""
    report(
        logging.WARNING,
        "The %s of a request cannot be told (%s); it counts by address",
        what,
        type(error).__name__,
    )


def _attribute(request: HttpRequest, name: str) -> Any:
    """Return what a middleware of Django puts on every request; ``None``, which is reported, without it."""
    found = getattr(request, name, None)
    if found is None:
        report(logging.WARNING, "A request has no %s: is the middleware missing? It counts by address", name)
    return found
