"""What a test asks a server, past the limiter: which sessions it has, and to end one."""

import time

from django.db import connections

from ratelimit_app.stores import store_for

#: Not the table of MariaDB that says the same: 10.11 has crashed while it was read and sessions ended.
_SESSIONS = {
    "postgresql": "SELECT pid, datname FROM pg_stat_activity",
    "mysql": "SHOW PROCESSLIST",
}

#: Seconds after which what a server was to end will not.
_PATIENCE = 30


def session(connection):
    """Return the server's own number for a connection."""
    return store_for("ratelimit").session(connection.connection)


def sessions(alias="default"):
    """Return the numbers of all connections to the database under test."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        cursor.execute(_SESSIONS[connection.vendor])
        return {row[0] for row in cursor.fetchall() if connection.settings_dict["NAME"] in row}


def kill(connection, by="default"):
    """Let the server end a connection, and wait until it has."""
    ended = session(connection)
    with connections[by].cursor() as cursor:
        cursor.execute(store_for("ratelimit").stop_statement, [ended])
    wait_for(lambda: ended not in sessions(by))


def wait_for(happened):
    deadline = time.monotonic() + _PATIENCE
    while not happened():
        assert time.monotonic() < deadline
