"""The settings of the app, each read at the moment of use, with its default beside its name."""

import datetime
import typing
import zoneinfo
from collections.abc import Mapping, Sequence

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS


class Configuration:
    """The ``RATELIMIT_*`` settings of the project, typed."""

    @property
    def enable(self) -> bool:
        """Whether limits are applied at all; when not, every call is allowed and none is counted."""
        return typing.cast(bool, self._get("ENABLE", True))

    @property
    def database(self) -> str:
        """The alias in ``DATABASES`` that the counters live on."""
        return typing.cast(str, self._get("DATABASE", DEFAULT_DB_ALIAS))

    @property
    def time_zone(self) -> datetime.tzinfo:
        """The time zone of calendar windows; by default the project's ``TIME_ZONE``."""
        return zoneinfo.ZoneInfo(typing.cast(str, self._get("TIME_ZONE", settings.TIME_ZONE)))

    @property
    def clock(self) -> str:
        """Whose clock counts: ``database`` (the server's, where it has one) or ``local``."""
        return typing.cast(str, self._get("CLOCK", "database"))

    @property
    def refresh(self) -> float:
        """Seconds until another process sees an edit of a limit at the latest; 0 looks every time."""
        return typing.cast(float, self._get("REFRESH", 2))

    @property
    def timeout(self) -> float:
        """Seconds that an answer of the counters' database is waited for."""
        return typing.cast(float, self._get("TIMEOUT", 0.5))

    @property
    def on_error(self) -> str:
        """What happens to calls while it does not answer: ``allow``, ``deny`` or ``local``."""
        return typing.cast(str, self._get("ON_ERROR", "allow"))

    @property
    def ipv6_prefix(self) -> int:
        """How many leading bits of an IPv6 address make one client."""
        return typing.cast(int, self._get("IPV6_PREFIX", 64))

    @property
    def trusted_proxies(self) -> int | Sequence[str]:
        """How many proxies stand in front, or the networks that they are in; 0 believes none."""
        return typing.cast("int | Sequence[str]", self._get("TRUSTED_PROXIES", 0))

    @property
    def proxy_header(self) -> str:
        """The header in which the trusted proxies write whom they saw."""
        return typing.cast(str, self._get("PROXY_HEADER", "X-Forwarded-For"))

    @property
    def headers(self) -> Sequence[str]:
        """The formats in which responses carry the limits: modules of ``ratelimit_app.headers``."""
        return typing.cast(Sequence[str], self._get("HEADERS", ("ietf",)))

    @property
    def exempt(self) -> Sequence[str]:
        """Views that the middleware leaves alone: ``name``, ``namespace:name`` or ``namespace:``."""
        return typing.cast(Sequence[str], self._get("EXEMPT", ("admin:",)))

    @property
    def refusal(self) -> str:
        """The dotted path of a function of request and decision that makes the 429; empty: the app does."""
        return typing.cast(str, self._get("REFUSAL", ""))

    @property
    def prune_probability(self) -> float:
        """How likely a batch of expired counters is pruned beside a call that was counted; 0: never."""
        return typing.cast(float, self._get("PRUNE_PROBABILITY", 0))

    @property
    def limits(self) -> Mapping[str, object]:
        """Limits declared in code: a rate, or the fields of a ``Limit``, by name."""
        return typing.cast(Mapping[str, object], self._get("LIMITS", {}))

    @staticmethod
    def drf_rates() -> Mapping[str, object]:
        """Return the rates of Django REST framework's own throttles, by scope: no setting of this app."""
        framework = getattr(settings, "REST_FRAMEWORK", None)
        rates = framework.get("DEFAULT_THROTTLE_RATES") if isinstance(framework, Mapping) else None
        return rates if isinstance(rates, Mapping) else {}

    @staticmethod
    def _get(name: str, default: object) -> object:
        return getattr(settings, f"RATELIMIT_{name}", default)


conf = Configuration()
