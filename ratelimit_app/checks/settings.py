"""The system check of the settings, each with an id of its own."""

import math
import re
import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import connections
from django.utils.module_loading import import_string

from ratelimit_app import headers
from ratelimit_app.checks.rates import check_declared
from ratelimit_app.conf import conf
from ratelimit_app.keys import proxies
from ratelimit_app.models import OnError
from ratelimit_app.stores import has_store

CLOCKS = ("database", "local")


def check_enable() -> None:
    if not isinstance(conf.enable, bool):
        raise ValueError(f"True or False, got {conf.enable!r}")


def check_database() -> None:
    alias = conf.database
    if alias not in connections:
        raise ValueError(f"unknown alias {alias!r} (have: {', '.join(connections)})")
    vendor = connections[alias].vendor
    if not has_store(vendor):
        raise ValueError(f"no store for the vendor {vendor!r}")


def check_time_zone() -> None:
    try:
        _ = conf.time_zone
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"the name of a time zone such as 'Europe/Paris' ({error})") from error


def check_refresh() -> None:
    _check_seconds(conf.refresh)


def check_timeout() -> None:
    _check_seconds(conf.timeout)
    if not conf.timeout:
        raise ValueError("a number of seconds above 0, or nothing could be asked; got 0")


def check_on_error() -> None:
    if conf.on_error not in OnError.values:
        raise ValueError(f"unknown {conf.on_error!r} (have: {', '.join(OnError.values)})")


def check_clock() -> None:
    if conf.clock not in CLOCKS:
        raise ValueError(f"unknown clock {conf.clock!r} (have: {', '.join(CLOCKS)})")


def check_ipv6_prefix() -> None:
    if type(conf.ipv6_prefix) is not int or not 1 <= conf.ipv6_prefix <= 128:
        raise ValueError(f"a whole number of bits from 1 to 128, got {conf.ipv6_prefix!r}")


def check_trusted_proxies() -> None:
    proxies.parse(conf.trusted_proxies)


def check_proxy_header() -> None:
    if not isinstance(conf.proxy_header, str) or not re.fullmatch("[A-Za-z0-9-]+", conf.proxy_header):
        raise ValueError(f"the name of a header such as 'X-Forwarded-For', got {conf.proxy_header!r}")


def check_headers() -> None:
    for name in _texts(conf.headers):
        headers.load(name)


def check_refusal() -> None:
    if not isinstance(conf.refusal, str):
        raise ValueError(f"the dotted path of a function, got {conf.refusal!r}")
    try:
        make = import_string(conf.refusal) if conf.refusal else None
    except Exception as error:  # a module may raise anything while it is imported
        raise ValueError(f"{conf.refusal!r} cannot be imported ({error})") from error
    if make is not None and not callable(make):
        raise ValueError(f"{conf.refusal!r} is not a function that can be called")


def check_exempt() -> None:
    _texts(conf.exempt)


def check_prune_probability() -> None:
    value = conf.prune_probability
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"a number from 0 (never) to 1 (with each call), got {value!r}")


def check_limits() -> None:
    if not isinstance(conf.limits, dict):
        raise ValueError(f"a dictionary of limits by name, got {conf.limits!r}")
    check_declared(conf.limits)


#: By number, the setting and what looks at it.
SETTINGS: tuple[tuple[str, str, Callable[[], None]], ...] = (
    ("E001", "DATABASE", check_database),
    ("E002", "TIME_ZONE", check_time_zone),
    ("E003", "REFRESH", check_refresh),
    ("E004", "LIMITS", check_limits),
    ("E005", "HEADERS", check_headers),
    ("E006", "CLOCK", check_clock),
    ("E007", "IPV6_PREFIX", check_ipv6_prefix),
    ("E008", "TIMEOUT", check_timeout),
    ("E009", "EXEMPT", check_exempt),
    ("E010", "ENABLE", check_enable),
    ("E011", "TRUSTED_PROXIES", check_trusted_proxies),
    ("E012", "PROXY_HEADER", check_proxy_header),
    ("E013", "REFUSAL", check_refusal),
    ("E014", "ON_ERROR", check_on_error),
    ("E015", "PRUNE_PROBABILITY", check_prune_probability),
)


@checks.register()
def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report every setting that cannot be used."""
    errors: list[checks.CheckMessage] = []
    for number, name, check in SETTINGS:
        try:
            check()
        except ValueError as error:
            errors.append(checks.Error(f"RATELIMIT_{name}: {error}", id=f"ratelimit_app.{number}"))
    return errors


def _check_seconds(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"a number of seconds from 0, got {value!r}")


def _texts(value: object) -> Sequence[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"a list of texts, got {value!r}")
    return value
