"""What the fuzz tests share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _only_limits_of_the_test(settings) -> None:
    settings.RATELIMIT_LIMITS = {}


@pytest.fixture(autouse=True)
def _no_line_for_every_refusal() -> Iterator[None]:
    logger = logging.getLogger("django.request")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before
