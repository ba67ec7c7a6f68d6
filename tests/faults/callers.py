"""Those who ask without a pause while a server breaks: processes, and clients of a real web server."""

import contextlib
import http.client
import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.apart import gunicorn, running
from tests.faults.site import LIMITS, PAUSE, UNLIMITED

PATHS = {**{limit: f"/{limit}" for limit in LIMITS}, "status": "/ratelimit/status/", UNLIMITED: "/up"}

#: Seconds until a client gives up, and until the first answer is overdue.
_PATIENCE = 10
_START = 60


class Answer(NamedTuple):
    """What a caller was told: when it asked, for how long it waited, and the instant of the decision."""

    caller: str
    limit: str
    start: float
    took: float
    status: int | str
    at: float
    fields: dict[str, str] = {}
    body: bytes = b""


Add = Callable[[Answer], None]


@contextlib.contextmanager
def asking(settings: dict[str, Any], folder: Path, *, number: int = 4) -> Iterator[list[Answer]]:
    """Let so many processes ask the limiter, and as many clients a web server with four processes.

    The answers, which are added as they come, are yielded when everybody has had one.
    """
    answers: list[Answer] = []
    over = threading.Event()
    threads: list[threading.Thread] = []
    with gunicorn(settings, folder / "log", threads=number) as port, contextlib.ExitStack() as stack:
        stack.callback(lambda: [thread.join() for thread in threads])
        for n in range(number):
            command = ["tests.faults.asking", *LIMITS]
            process = stack.enter_context(running(command, settings, stdout=subprocess.PIPE))
            threads += [
                threading.Thread(target=_listen, args=(answers.append, f"process-{n}", process)),
                threading.Thread(target=_visit, args=(answers.append, f"http-{n}", port, over)),
            ]
        stack.callback(over.set)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/up", timeout=_START):
            pass  # the clients find it awake
        for thread in threads:
            thread.start()
        _wait_for(answers, len(threads))
        yield answers


def _listen(add: Add, name: str, process: "subprocess.Popen[str]") -> None:
    assert process.stdout
    with process.stdout as lines:
        for line in lines:
            add(Answer(name, *json.loads(line)))


def _visit(add: Add, name: str, port: int, over: threading.Event) -> None:
    while not over.wait(PAUSE):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        with contextlib.closing(connection):
            for limit, path in PATHS.items():
                add(_get(connection, name, limit, path))


def _get(connection: http.client.HTTPConnection, name: str, limit: str, path: str) -> Answer:
    start, begun = time.time(), time.monotonic()
    status: int | str
    fields, body = {}, b""
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        status, body = response.status, response.read()
        fields = {field.lower(): value for field, value in response.getheaders()}
    except (OSError, http.client.HTTPException) as error:
        status = repr(error)
    at = float(body) if status == 200 and limit in LIMITS else 0.0
    return Answer(name, limit, start, time.monotonic() - begun, status, at, fields, body)


def _wait_for(answers: list[Answer], number: int) -> None:
    end = time.monotonic() + _START
    while len({answer.caller for answer in answers}) < number:
        assert time.monotonic() < end, "some callers get no answer"
        time.sleep(0.02)
