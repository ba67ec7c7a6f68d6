"""The rates of Django REST framework's own throttles, as limits in code."""

from django.http import HttpRequest

from ratelimit_app import keys
from ratelimit_app.conf import conf

#: By scope, the ``key`` of a limit that counts as the framework's throttle of that scope does.
_KEYS = {"anon": f"{__name__}.anonymous"}


def specs() -> dict[str, object]:
    """Return the entries of ``DEFAULT_THROTTLE_RATES`` as ``RATELIMIT_LIMITS`` would have them.

    They count by account or address, ``anon`` by the address of those who are not logged in. A scope
    whose rate is ``None`` is a limit that is off.
    """
    return {
        scope: rate if rate is None else {"rate": rate, "key": _KEYS.get(scope, "user_or_ip")}
        for scope, rate in conf.drf_rates().items()
    }


def anonymous(request: HttpRequest) -> str | None:
    """Count those who are not logged in by address, and the others not at all."""
    account = getattr(request, "user", None)
    return None if account is not None and account.is_authenticated else keys.ip(request)
