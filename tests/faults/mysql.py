"""A MariaDB of the test's own."""

import subprocess
from typing import Any

import MySQLdb

from tests.faults.servers import Server

_SIZES = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M"]

# The account is no administrator's: those write also where all is read-only.
_INIT = """
CREATE DATABASE IF NOT EXISTS site CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS site@'127.0.0.1';
GRANT ALL ON site.* TO site@'127.0.0.1';
"""


class VendorServer(Server):
    user = "mysql"
    lock_table = ["LOCK TABLES ratelimit_app_counter WRITE"]
    connection_error = MySQLdb.OperationalError

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.mysql",
            "HOST": "127.0.0.1",
            "PORT": str(self.port),
            "USER": "site",
            "NAME": "site",
        }

    def create(self) -> None:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        made = self.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={self.folder / 'data'}", *options, *_SIZES],
            stdout=subprocess.DEVNULL,
        )
        assert made.wait() == 0
        (self.folder / "init").write_text(_INIT)

    def command(self) -> list[str]:
        options = {
            "datadir": self.folder / "data",
            "init-file": self.folder / "init",
            "socket": self.folder / "socket",
            "pid-file": self.folder / "pid",
            "port": self.port,
            "bind-address": "127.0.0.1",
            "innodb-flush-log-at-trx-commit": 2,  # what is killed is the server, not the machine
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        return ["mariadbd", "--no-defaults", "--skip-name-resolve", *settings, *_SIZES]

    def connect(self) -> Any:
        return MySQLdb.connect(
            host="127.0.0.1", port=self.port, user="root", database="site", autocommit=True
        )

    def set_read_only(self, on: bool) -> None:
        self.execute(f"SET GLOBAL read_only = {int(on)}")
