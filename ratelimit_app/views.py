"""The status view: how much of each limit the caller has left."""

from typing import Any

from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import limiter
from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit


class StatusView(APIView):
    """Show the caller's own figures for each limit, or those of ``?key=`` to staff who may see counters.

    It counts nothing and is never refused.
    """

    permission_classes = ()
    throttle_classes = ()

    def get(self, request: Request) -> Response:
        keys = self._keys(request)
        parts = limiter.peek_all(keys).parts if keys else ()
        response = Response({"limits": [_figures(part) for part in parts if part.policy]})
        response["Cache-Control"] = "no-store"
        return response

    def _keys(self, request: Request) -> dict[LiveLimit, str]:
        shown = [limit for limit in limiter.current_limits().active if not limit.is_shadow]
        asked = request.query_params.get("key")
        if asked is None:
            return {limit: key for limit in shown if (key := limit.key(request._request)) is not None}
        if not (request.user.is_staff and request.user.has_perm("ratelimit_app.view_counter")):
            raise PermissionDenied("Only staff who may view counters see those of other keys.")
        return dict.fromkeys(shown, asked)


def _figures(decision: Decision) -> dict[str, Any]:
    window = decision.policy.window if decision.policy else None
    return {
        "limit": decision.limit,
        "quota": decision.quota,
        "window": window,
        "used": decision.used,
        "remaining": decision.remaining,
        "reset_after": decision.reset_after,
        "retry_after": decision.retry_after,
        "more_after": decision.more_after,
    }
