"""Processes beside the test, with settings of their own: a real WSGI server, or a module that is run."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db import connections

#: Seconds after which processes that were told to start or to end have not.
_PATIENCE = 60


def databases() -> dict[str, dict[str, Any]]:
    """Return the databases of this test run, as settings for other processes."""
    return {
        alias: {**connections[alias].settings_dict, "CONN_MAX_AGE": 60, "TEST": {}} for alias in connections
    }


@contextlib.contextmanager
def gunicorn(settings: dict[str, Any], log: Path, *, workers: int = 4, threads: int = 8) -> Iterator[int]:
    """Serve the project by so many processes with so many threads each; yield the port.

    What it has to say goes into a file, which is empty if it goes well.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        options = {
            "workers": workers,
            "threads": threads,
            "bind": f"fd://{listening.fileno()}",
            "keep-alive": 60,
            "log-level": "warning",
            "graceful-timeout": 5,
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        command = ["gunicorn", "--preload", "--no-control-socket", *arguments, "project.wsgi"]
        handed_down = {"pass_fds": [listening.fileno()]}
        with log.open("w") as lines, running(command, settings, stderr=lines, **handed_down) as server:
            _wait_for_children(server.pid, workers)
            yield listening.getsockname()[1]


def _wait_for_children(process: int, number: int) -> None:
    children, end = Path(f"/proc/{process}/task/{process}/children"), time.monotonic() + _PATIENCE
    while len(children.read_text().split()) < number:
        assert time.monotonic() < end
        time.sleep(0.02)


@contextlib.contextmanager
def running(
    command: list[str], settings: dict[str, Any], **options: Any
) -> Iterator["subprocess.Popen[str]"]:
    """Run a module (``python -m``) with these settings for as long as the block lasts."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env=environment(settings), text=True, **options
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE)
        finally:
            process.kill()


def environment(settings: dict[str, Any]) -> dict[str, str]:
    """Return the environment of a process with these settings."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.site_settings",
        "TEST_SETTINGS": json.dumps(settings, default=str),
    }
