import pytest
from django.core.checks import run_checks

CORS = "corsheaders.middleware.CorsMiddleware"
RATELIMIT = "ratelimit_app.middleware.RateLimitMiddleware"
COMMON = "django.middleware.common.CommonMiddleware"


def warnings():
    return [message for message in run_checks() if message.id == "ratelimit_app.W004"]


def test_cors_middleware_below_the_middleware_is_reported(settings):
    settings.MIDDLEWARE = [RATELIMIT, COMMON, CORS]
    (warning,) = warnings()
    assert warning.msg.startswith(f"{CORS} stands below {RATELIMIT} in MIDDLEWARE")
    assert "CORS_EXPOSE_HEADERS" in warning.hint


@pytest.mark.parametrize("middleware", [[CORS, COMMON, RATELIMIT], [CORS], [RATELIMIT], [COMMON], []])
def test_any_other_order_is_not_reported(middleware, settings):
    settings.MIDDLEWARE = middleware
    assert warnings() == []
