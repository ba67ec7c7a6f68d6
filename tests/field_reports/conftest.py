"""What the field reports share."""

import pytest


@pytest.fixture(autouse=True)
def _only_limits_of_the_test(settings) -> None:
    settings.RATELIMIT_LIMITS = {}
