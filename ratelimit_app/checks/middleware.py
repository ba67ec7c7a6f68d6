"""The system check of the order in which middleware stands."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

CORS = "corsheaders.middleware.CorsMiddleware"
RATELIMIT = "ratelimit_app.middleware.RateLimitMiddleware"


@checks.register()
def check_cors_order(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report CORS middleware below the middleware that refuses."""
    middleware = list(settings.MIDDLEWARE)
    if not {CORS, RATELIMIT} <= set(middleware) or middleware.index(CORS) < middleware.index(RATELIMIT):
        return []
    return [
        checks.Warning(
            f"{CORS} stands below {RATELIMIT} in MIDDLEWARE: it wants to be above all that answers "
            "requests, so that scripts of other origins can read every refusal.",
            hint=f"Put {CORS} first, and add the fields to CORS_EXPOSE_HEADERS.",
            id="ratelimit_app.W004",
        )
    ]
