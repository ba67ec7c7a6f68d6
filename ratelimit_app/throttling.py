"""Limits on the views of Django REST framework."""

from collections.abc import Sequence

from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from ratelimit_app import enforcement
from ratelimit_app.decision import Decision


def named_limits(view: APIView | type[APIView]) -> list[str]:
    """Return the limits that a view names in ``throttle_scope`` and ``throttle_limits``."""
    scope: str | None = getattr(view, "throttle_scope", None)
    limits: str | Sequence[str] = getattr(view, "throttle_limits", ())
    return [*([scope] if scope else []), *([limits] if isinstance(limits, str) else limits)]


class RateLimitThrottle(BaseThrottle):
    """Apply the limits that a view names, as one decision.

    The view names one in ``throttle_scope`` and any number in ``throttle_limits``; a view that names
    none is not limited.
    """

    _decision: Decision | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Count the request; return whether it may go on."""
        self._decision = enforcement.enforce_named(request, named_limits(view))
        return self._decision is None or self._decision.allowed

    def wait(self) -> float | None:
        """Return the seconds to wait after a refusal; ``None`` when waiting never helps."""
        return self._decision.retry_after_seconds if self._decision else None
