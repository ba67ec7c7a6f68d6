"""Key functions of the project's own, which may fail or return anything."""

import functools
import logging
import uuid
from collections.abc import Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.module_loading import import_string

from ratelimit_app.keys.addresses import ip
from ratelimit_app.reporting import name_of, report

KeyFunction = Callable[[HttpRequest], str | None]


def load(spec: str) -> KeyFunction:
    """Return the function at a dotted path, made safe; raise ``ValueError`` where there is none."""
    try:
        function = import_string(spec)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        raise ValueError(f"key: {spec!r} cannot be imported ({error})") from error
    if not callable(function) or iscoroutinefunction(function):
        raise ValueError(f"key: {spec!r} is not a function that can be called")
    return own(cast(Callable[[HttpRequest], object], function))


def own(function: Callable[[HttpRequest], object]) -> KeyFunction:
    """Turn a project's own function into one that returns a text or ``None``, whatever goes wrong in it.

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
            report(
                logging.ERROR, "The key function %s returned a %s", name_of(function), type(value).__name__
            )
        except Exception:
            report(logging.ERROR, "The key function %s failed", name_of(function), exc_info=True)
        return ip(request)

    return key
