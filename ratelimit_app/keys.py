"""Whose key: from a request to the text that says who is limited.

A limit names one of the functions in ``KEYS``, ``header:<name>``, or the dotted path of a function
of your own. It takes the request and returns the key; ``None`` means "not limited".
"""

import functools
import ipaddress
import logging
import re
import uuid
from collections.abc import Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.module_loading import import_string

from ratelimit_app.conf import conf
from ratelimit_app.hashing import keyed_hash
from ratelimit_app.reporting import report

KeyFunction = Callable[[HttpRequest], str | None]

_HEADER = re.compile(r"header:([!#$%&'*+.^_`|~0-9A-Za-z-]+)")
_DOTTED_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


def load(spec: str) -> KeyFunction:
    """Return the function that a limit's ``key`` names; raise ``ValueError`` where there is none."""
    if spec in KEYS:
        return KEYS[spec]
    if match := _HEADER.fullmatch(spec):
        return functools.partial(header, match[1])
    if not _DOTTED_PATH.fullmatch(spec):
        raise ValueError(f"key: {', '.join(KEYS)}, header:<name> or a dotted path, got {spec!r}")
    return own(_import(spec))


def everyone(request: HttpRequest) -> str:
    """Count all callers together."""
    return "global"


def ip(request: HttpRequest) -> str:
    """Count by address: an IPv4 address, or the leading /64 (``RATELIMIT_IPV6_PREFIX``) of an IPv6 one.

    An IPv4-mapped IPv6 address is the IPv4 address. What is no address counts under its own text.
    """
    remote = request.META.get("REMOTE_ADDR") or ""
    try:
        return f"ip:{client(remote)}"
    except ValueError:
        report(logging.WARNING, "REMOTE_ADDR is not an address: %.60r; it counts under its own text", remote)
        return f"ip:?{remote}"  # no address begins with a question mark


def user(request: HttpRequest) -> str:
    """Count by account; who is not logged in counts by address."""
    try:
        account = getattr(request, "user", None)
        if account is not None and account.is_authenticated:
            return f"user:{account.pk}"
    except Exception:  # reading a session whose id was made up, say
        report(
            logging.WARNING, "The account of a request cannot be told; it counts by address", exc_info=True
        )
    return ip(request)


def header(name: str, request: HttpRequest) -> str:
    """Count by the value of a header, kept only as a keyed hash; without the header, by address."""
    value = request.headers.get(name)
    if not value:
        return ip(request)
    return f"header:{name.lower()}:{keyed_hash(value)}"


def own(function: Callable[[HttpRequest], object]) -> KeyFunction:
    """Turn a project's own function into one that returns a text or ``None``, and never raises.

    It may return a text, a whole number or a UUID. Where it returns something else or fails, that is
    reported, and the caller counts by address: neither a server error nor a way past the limit.
    """

    @functools.wraps(function)
    def key(request: HttpRequest) -> str | None:
        try:
            value = function(request)
            if value is None:
                return None
            if isinstance(value, str | int | uuid.UUID):
                return str(value)
            report(logging.ERROR, "The key function %s returned a %s", _path(function), type(value).__name__)
        except (Exception, SystemExit):
            report(logging.ERROR, "The key function %s failed", _path(function), exc_info=True)
        return ip(request)

    return key


KEYS: dict[str, KeyFunction] = {
    "ip": ip,
    "user": user,
    "user_or_ip": user,
    "global": everyone,
}


def client(remote: str) -> str:
    """Return whom ``ip`` counts an address as; raise ``ValueError`` for what is no address."""
    address = ipaddress.ip_address(remote)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    network = ipaddress.ip_network((int(address), conf.ipv6_prefix), strict=False)
    return str(network)


def _import(spec: str) -> Callable[[HttpRequest], object]:
    try:
        function = import_string(spec)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        raise ValueError(f"key: {spec!r} cannot be imported ({error})") from error
    if not callable(function) or iscoroutinefunction(function):
        raise ValueError(f"key: {spec!r} is not a function that can be called")
    return cast(Callable[[HttpRequest], object], function)


def _path(function: Callable[[HttpRequest], object]) -> str:
    return getattr(function, "__qualname__", repr(function))
