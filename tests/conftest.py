"""What all tests share."""

from collections.abc import Iterator

import hypothesis
import pytest
from django.db import connections
from django.test import override_settings

from ratelimit_app import outages, reporting
from ratelimit_app.testing import FrozenClock, frozen_time
from tests import races

pytest.register_assert_rewrite(
    "tests.algorithms.bench",
    "tests.stores.contract",
    "tests.stores.log_contract",
    "tests.stores.server_contract",
)
hypothesis.settings.register_profile("ratelimit_app", deadline=None)  # other things run on the machine
hypothesis.settings.register_profile("long", deadline=None, max_examples=400)
hypothesis.settings.load_profile("ratelimit_app")

#: 2026-06-01T12:00:00Z, a Monday; the start of a minute and of an hour.
NOON = 1_780_315_200

#: The store tests of the vendors that are not under test today have nothing to talk to.
_VENDORS = {"sqlite", "postgresql", "mysql"}
collect_ignore = [f"stores/test_{vendor}.py" for vendor in _VENDORS - {connections["ratelimit"].vendor}]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let every test with a database use both: the project's and the counters'."""
    for item in items:
        for marker in item.iter_markers("django_db"):
            marker.kwargs.setdefault("databases", "__all__")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker) -> Iterator[None]:
    """Close both connections to the one test database before a server is told to drop it."""
    yield
    with django_db_blocker.unblock():
        connections.close_all()


@pytest.fixture
def clock() -> Iterator[FrozenClock]:
    with frozen_time(NOON) as frozen:
        yield frozen


@pytest.fixture(scope="session", autouse=True)
def _patience() -> Iterator[None]:
    """Let nothing be given up because the machine has much to do; tests of that say so themselves."""
    with override_settings(RATELIMIT_TIMEOUT=races.PATIENCE):
        yield


@pytest.fixture(autouse=True)
def _begin_anew() -> None:
    reporting.forget()
    outages.forget()
