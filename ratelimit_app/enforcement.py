"""One request's limits as one decision; each limit counts a request once, wherever it meets it."""

from collections.abc import Iterable

from django.http import HttpRequest
from django.urls import ResolverMatch
from rest_framework.request import Request

from ratelimit_app import limiter
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision, combine
from ratelimit_app.limits import LiveLimit

_MADE = "_ratelimit_decisions"


def enforce_named(request: HttpRequest | Request, names: Iterable[str]) -> Decision | None:
    """Apply limits by name; return their decision, ``None`` if none of them applies to the request.

    A name that is not known limits nothing, and is logged.
    """
    if not conf.enable:
        return None
    snapshot = limiter.current_limits()
    found = [snapshot.find(name) for name in names]
    return _enforce(_plain(request), [limit for limit in found if limit])


def enforce_matching(request: HttpRequest) -> Decision | None:
    """Apply the limits whose path a request is on; return their decision, ``None`` if there is none.

    To be called when Django has found the view: an address that leads to none starts no counter.
    """
    if not conf.enable or _is_exempt(request.resolver_match):
        return None
    path = request.path_info
    active = limiter.current_limits().active
    return _enforce(request, [limit for limit in active if limit.path and limit.path.search(path)])


def decisions(request: HttpRequest | Request) -> list[Decision]:
    """Return what the limits have decided about a request so far, one decision for each."""
    return list(getattr(_plain(request), _MADE, {}).values())


def refusing(request: HttpRequest) -> Decision | None:
    """Return the decision by which a request was refused, ``None`` if it was not."""
    made = decisions(request)
    return combine(made) if any(not decision.allowed for decision in made) else None


def _enforce(request: HttpRequest, limits: Iterable[LiveLimit]) -> Decision | None:
    """Decide about the limits that the request has not met yet, all of them at once."""
    keys = {limit: key for limit in limits if (key := _key(limit, request)) is not None}
    if not keys:
        return None
    made: dict[tuple[str, str], Decision] = request.__dict__.setdefault(_MADE, {})
    new = {limit: key for limit, key in keys.items() if (limit.space, key) not in made}
    if new:
        decision = limiter.consume_all(new)
        for (limit, key), part in zip(new.items(), decision.parts, strict=True):
            made[limit.space, key] = part
    return combine([made[limit.space, key] for limit, key in keys.items()])


def _plain(request: HttpRequest | Request) -> HttpRequest:
    """Return Django's request, which REST framework wraps in one of its own."""
    return request._request if isinstance(request, Request) else request


def _key(limit: LiveLimit, request: HttpRequest) -> str | None:
    """Tell who is limited; ``None`` if the limit does not apply to the request."""
    return limit.key(request) if limit.takes(request.method) else None


def _is_exempt(match: ResolverMatch | None) -> bool:
    if match is None:
        return False
    # The status view shows the limits to those who are refused, too.
    return "ratelimit_app" in match.app_names or any(
        match.view_name == exempt or (exempt.endswith(":") and match.view_name.startswith(exempt))
        for exempt in conf.exempt
    )
