"""A server of the kind that is under test, which may be broken, and those who ask it all the time."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests.apart import environment
from tests.faults.callers import Answer, asking
from tests.faults.servers import Server
from tests.faults.site import settings

pytest.register_assert_rewrite("tests.faults.contract")

_VENDOR = connections["ratelimit"].vendor

# SQLite has no server.
collect_ignore_glob = ["test_*.py"] if _VENDOR == "sqlite" else []


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server: Server = importlib.import_module(f"tests.faults.{_VENDOR}").VendorServer()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the settings of a site whose counters are on that server, with its tables made."""
    made = settings(server.settings, tmp_path_factory.mktemp("site"))
    for alias in made["DATABASES"]:
        migrate = [sys.executable, "-m", "django", "migrate", "--verbosity=0", f"--database={alias}"]
        subprocess.run(migrate, env=environment(made), check=True)
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("callers")


@pytest.fixture(scope="module")
def answers(site: dict[str, Any], folder: Path) -> Iterator[list[Answer]]:
    """Return what the callers are told, from the first test of a file to its last."""
    with asking(site, folder) as answers:
        yield answers
