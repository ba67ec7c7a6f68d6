"""A PostgreSQL of the test's own."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.servers import Server

_OPTIONS = {
    "fsync": "off",  # what is killed is the server, not the machine
    "shared_buffers": "16MB",
    "listen_addresses": "127.0.0.1",
}


class VendorServer(Server):
    user = "postgres"
    lock_table = ["BEGIN", "LOCK TABLE ratelimit_app_counter IN ACCESS EXCLUSIVE MODE"]
    connection_error = psycopg.OperationalError

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "USER": "postgres",
            "NAME": "postgres",
        }

    def create(self) -> None:
        options = ["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "--no-sync"]
        made = self.run(
            [_program("initdb"), f"--pgdata={self.folder / 'data'}", *options], stdout=subprocess.DEVNULL
        )
        assert made.wait() == 0

    def command(self) -> list[str]:
        options = {**_OPTIONS, "port": self.port, "unix_socket_directories": self.folder}
        settings = [f"--{name}={value}" for name, value in options.items()]
        return [_program("postgres"), "-D", str(self.folder / "data"), *settings]

    def connect(self) -> Any:
        return psycopg.connect(f"host=127.0.0.1 port={self.port} user=postgres", autocommit=True)

    def set_read_only(self, on: bool) -> None:
        self.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
        self.execute("SELECT pg_reload_conf()")
        while self.execute("SHOW default_transaction_read_only") != [("on" if on else "off",)]:
            time.sleep(0.02)  # its processes are told one after the other


def _program(name: str) -> str:
    """Return where a program of the server is: Debian keeps those of each version in a folder."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or next(str(folder / name) for folder in folders if (folder / name).exists())
