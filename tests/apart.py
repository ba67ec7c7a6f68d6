"""Processes beside the test, with settings of their own: a real WSGI server, or a module that is run."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.db import connections

#: Seconds after which a process that was told to end has not.
_PATIENCE = 30


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
        with log.open("w") as lines, running(command, settings, stderr=lines, pass_fds=[listening.fileno()]):
            yield listening.getsockname()[1]


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
