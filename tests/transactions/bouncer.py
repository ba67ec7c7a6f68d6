"""A real pgbouncer in transaction mode: each transaction may meet another session of the server."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from django.db import connections

from tests.transactions.servers import wait_for

#: What the pool is called that the counters have for themselves, of two sessions.
COUNTERS = "counters"

_CONFIG = """
[databases]
{name} = {server}
counters = {server} dbname={name} pool_size=2

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 12
max_client_conn = 100
ignore_startup_parameters = extra_float_digits
"""


@contextlib.contextmanager
def pgbouncer(folder: Path) -> Iterator[int]:
    """Run one in front of the server under test; yield its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "pgbouncer.ini"
    settings = connections["default"].settings_dict
    known = {name: settings[name.upper()] for name in ("host", "port", "user", "password")}
    server = " ".join(f"{name}={value}" for name, value in known.items() if value)
    config.write_text(_CONFIG.format(name=settings["NAME"], server=server, listen_port=port))
    user = ["-u", "nobody"] if os.getuid() == 0 else []  # it refuses to run as root
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(["pgbouncer", *user, str(config)], stderr=log)
        try:
            wait_for(lambda: _listens(port))
            yield port
        finally:
            running.terminate()
            running.wait(30)


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
