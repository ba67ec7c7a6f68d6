"""System checks of the settings and of the counters' database, each with an id of its own."""

import ipaddress
import math
import re
import zoneinfo
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.utils.module_loading import import_string

from ratelimit_app import drf_rates, headers
from ratelimit_app.conf import conf
from ratelimit_app.keys import proxies
from ratelimit_app.limits import declared
from ratelimit_app.stores import database_of, has_store, store_for

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


def check_limits() -> None:
    if not isinstance(conf.limits, dict):
        raise ValueError(f"a dictionary of limits by name, got {conf.limits!r}")
    _check_declared(conf.limits)


#: The ids are for good: a new check takes the next number.
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


@checks.register()
def check_trust(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report networks that together hold every address."""
    try:
        trusted = proxies.parse(conf.trusted_proxies)
    except ValueError:  # E011 speaks of it
        return []
    if isinstance(trusted, int) or not _holds_everybody(trusted):
        return []
    return [
        checks.Warning(
            "RATELIMIT_TRUSTED_PROXIES trusts every address: whoever calls can name any other as its own.",
            hint="List the networks that your proxies are in, or say how many proxies stand in front.",
            id="ratelimit_app.W010",
        )
    ]


@checks.register()
def check_drf_rates(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report a rate of Django REST framework's throttles that is no limit here."""
    try:
        _check_declared(drf_rates.specs())
    except ValueError as error:
        return [
            checks.Error(
                f"REST_FRAMEWORK['DEFAULT_THROTTLE_RATES']: {error}",
                hint="Mend the rate, or declare the limit in RATELIMIT_LIMITS.",
                id="ratelimit_app.E004",
            )
        ]
    return []


@checks.register()
def check_sqlite_file(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report counters that share a SQLite file with what the views write."""
    if conf.database not in connections or connections[conf.database].vendor != "sqlite":
        return []
    if conf.database != DEFAULT_DB_ALIAS and database_of(conf.database) != database_of(DEFAULT_DB_ALIAS):
        return []
    return [
        checks.Warning(
            "The counters are in the same SQLite file as everything else: a view's transaction that "
            "has written takes the count along, and back when it fails.",
            hint="Give RATELIMIT_DATABASE an alias with a file of its own, and add "
            "'ratelimit_app.routers.CounterRouter' to DATABASE_ROUTERS.",
            id="ratelimit_app.W001",
        )
    ]


@checks.register(checks.Tags.database)
def check_functions(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[checks.CheckMessage]:
    """Report what the counters' database could have besides the tables, and has not."""
    missing = conf.database in (databases or ()) and _missing(conf.database)
    if not missing:
        return []
    return [
        checks.Warning(
            f"The counters' database has not {missing}: several limits at once, and sliding logs, take a "
            "transaction instead of one round trip.",
            hint="Send what 'manage.py sqlmigrate ratelimit_app 0003' prints as a role that may create "
            "functions, and restart.",
            id="ratelimit_app.W003",
        )
    ]


def _holds_everybody(networks: Sequence[proxies.Network]) -> bool:
    four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    merged: list[proxies.Network] = [*ipaddress.collapse_addresses(four)]
    merged += ipaddress.collapse_addresses(six)
    return any(network.prefixlen == 0 for network in merged)


def _check_declared(specs: Mapping[str, object]) -> None:
    for name, spec in specs.items():
        try:
            declared(name, spec).full_clean(exclude=["name"], validate_unique=False)
        except Exception as error:  # whatever a developer wrote there
            raise ValueError(f"{name!r}: {error}") from error


def _missing(alias: str) -> str:
    try:
        return store_for(alias).missing()
    except Error:  # a database that does not answer is for others to report
        return ""


def _check_seconds(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"a number of seconds from 0, got {value!r}")


def _texts(value: object) -> Sequence[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"a list of texts, got {value!r}")
    return value
