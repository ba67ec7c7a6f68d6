"""Whose key: from a request to the text that says who is limited.

A limit names one of the functions in ``KEYS``, one of ``NAMED`` with a name of the project's
(``header:X-Api-Key``), the dotted path of a function of your own, or several of them joined by
`` + ``. Each takes the request and returns the key; ``None`` means "not limited".
"""

import functools
import re
from collections.abc import Callable

from django.http import HttpRequest

from ratelimit_app.keys.addresses import client, ip
from ratelimit_app.keys.callers import header, path, session, token, user
from ratelimit_app.keys.fields import field
from ratelimit_app.keys.own import KeyFunction, own
from ratelimit_app.keys.own import load as _load_own

__all__ = ["KEYS", "NAMED", "KeyFunction", "client", "combined", "everyone", "field", "header"]
__all__ += ["ip", "load", "own", "path", "session", "token", "user"]

#: Between the parts of a key that are counted by together.
JOINT = " + "

_DOTTED_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


def load(spec: str) -> KeyFunction:
    """Return the function that a limit's ``key`` names; raise ``ValueError`` where there is none."""
    if not isinstance(spec, str):  # RATELIMIT_LIMITS may hold anything
        raise ValueError(f"key: a text, got {spec!r}")
    parts = [_load_part(part) for part in spec.split(JOINT)]
    return parts[0] if len(parts) == 1 else functools.partial(combined, parts)


def everyone(request: HttpRequest) -> str:
    """Count all callers together."""
    return "global"


def combined(parts: list[KeyFunction], request: HttpRequest) -> str | None:
    """Count by several keys together; ``None`` where one of them is: the limit then does not apply.

    No two different lists of parts have the same text.
    """
    texts: list[str] = []
    for part in parts:
        text = part(request)
        if text is None:
            return None
        texts.append(text.replace("%", "%25").replace("+", "%2B"))
    return "+".join(texts)


KEYS: dict[str, KeyFunction] = {
    "ip": ip,
    "user": user,
    "user_or_ip": user,
    "session": session,
    "token": token,
    "global": everyone,
}

#: What is written with a name behind a colon: the function, what the name may be, how it is shown.
NAMED: dict[str, tuple[Callable[[str, HttpRequest], str], re.Pattern[str], str]] = {
    "header": (header, re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), "<name>"),
    "path": (path, re.compile(r"[^\W\d]\w*"), "<parameter>"),
    "field": (field, re.compile(r"\S+"), "<name>"),
}


def _load_part(spec: str) -> KeyFunction:
    if spec in KEYS:
        return KEYS[spec]
    kind, colon, name = spec.partition(":")
    if colon and kind in NAMED and NAMED[kind][1].fullmatch(name):
        return functools.partial(NAMED[kind][0], name)
    if not _DOTTED_PATH.fullmatch(spec):
        named = (f"{kind}:{shown}" for kind, (_, _, shown) in NAMED.items())
        raise ValueError(
            f"key: {', '.join([*KEYS, *named])}, a dotted path, or several joined by {JOINT!r}, got {spec!r}"
        )
    return _load_own(spec)
