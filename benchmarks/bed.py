"""What every benchmark stands on: a database of its own, and the versions of all that is measured."""

import contextlib
import platform
from collections.abc import Iterator

import django
from django.db import connections
from django.test.utils import setup_databases, teardown_databases

from ratelimit_app.conf import conf


@contextlib.contextmanager
def own_database() -> Iterator[None]:
    """Make a database beside the one that the settings name, as a test run does; drop it at the end."""
    databases = setup_databases(verbosity=0, interactive=False)
    try:
        yield
    finally:
        connections.close_all()
        teardown_databases(databases, verbosity=0)


def versions() -> str:
    """Return the name and version of the counters' database, and the versions of Python and Django."""
    connection = connections[conf.database]
    version = ".".join(str(part) for part in connection.get_database_version())
    python = platform.python_version()
    return f"{connection.display_name} {version}, Python {python}, Django {django.__version__}"
