"""Database servers that a test may kill, stop and break: processes and folders of their own."""

import abc
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

#: Seconds after which a server that does not answer will not.
_PATIENCE = 60


class Server(abc.ABC):
    """A server with a site's database in it; a vendor's module says how to make and to run it."""

    #: The account that runs it where the test is run by root, which servers refuse to be.
    user: ClassVar[str]

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ratelimit-server-"))
        self.port = free_port()
        if self.runs_as:
            shutil.chown(self.folder, self.runs_as)
        self.create()
        self.start()

    @property
    def runs_as(self) -> str | None:
        return self.user if os.getuid() == 0 else None

    def start(self) -> None:
        """Run the server; return when it answers."""
        with (self.folder / "log").open("a") as log:
            self.process = self.run(self.command(), stdout=log, stderr=log)
        end = time.monotonic() + _PATIENCE
        while not self.answers():
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def kill(self) -> None:
        """End all of its processes, without a chance to write anything."""
        self.send(signal.SIGKILL)
        self.process.wait(_PATIENCE)

    def stop_all(self) -> None:
        """Stop all of its processes in their tracks: it takes connections, and never answers."""
        self.send(signal.SIGSTOP)

    def continue_all(self) -> None:
        self.send(signal.SIGCONT)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def send(self, number: signal.Signals) -> None:
        for process in [self.process.pid, *_descendants(self.process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except self.connection_error:
            return False
        return True

    def execute(self, sql: str) -> Any:
        """Send a statement as an administrator; return the rows of a query."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else None

    def run(self, command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            user=self.runs_as,
            group=self.runs_as and _group_of(self.runs_as),
            extra_groups=[] if self.runs_as else None,
            cwd=self.folder,
            **options,
        )

    # What may happen to it ----------------------------------------------------------------------

    @contextlib.contextmanager
    def killed(self) -> Iterator[None]:
        self.kill()
        try:
            yield
        finally:
            self.start()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self.stop_all()
        try:
            yield
        finally:
            self.continue_all()

    @contextlib.contextmanager
    def without_table(self) -> Iterator[None]:
        self.execute("ALTER TABLE ratelimit_app_counter RENAME TO taken_away")
        try:
            yield
        finally:
            self.execute("ALTER TABLE taken_away RENAME TO ratelimit_app_counter")

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        self.set_read_only(True)
        try:
            yield
        finally:
            self.set_read_only(False)

    @contextlib.contextmanager
    def locked(self, *statements: str) -> Iterator[None]:
        """Keep what these statements lock, in a transaction that somebody has left open."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            yield

    def row_locked(self, limit: str) -> contextlib.AbstractContextManager[None]:
        """Lock the rows of a limit, and nothing beside them."""
        c = "ratelimit_app_counter"
        rows = self.execute(f"SELECT {c}.key, window_start FROM {c} WHERE {c}.key LIKE '{limit}@%'")
        lock = "SELECT count FROM {0} WHERE {0}.key = '{1}' AND window_start = {2} FOR UPDATE"
        return self.locked("BEGIN", *(lock.format(c, *row) for row in rows))

    def table_locked(self) -> contextlib.AbstractContextManager[None]:
        return self.locked(*self.lock_table)

    # What a vendor says -------------------------------------------------------------------------

    lock_table: ClassVar[list[str]]
    connection_error: ClassVar[type[Exception]]

    @property
    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """The database as an entry of ``DATABASES``, for the account of a site."""

    @abc.abstractmethod
    def create(self) -> None:
        """Make the files of a new server in its folder."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """Return the command that runs the server until it is killed."""

    @abc.abstractmethod
    def connect(self) -> Any:
        """Open a connection of the driver, by which every statement commits on its own."""

    @abc.abstractmethod
    def set_read_only(self, on: bool) -> None:
        """Refuse all writes of a site from now on, also on the connections that it has, or take them."""


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """Yield a port that takes connections, and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield listening.getsockname()[1]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


def _descendants(process: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            children += map(int, task.read_text().split())
    return children + [each for child in children for each in _descendants(child)]


def _group_of(user: str) -> int:
    return pwd.getpwnam(user).pw_gid
