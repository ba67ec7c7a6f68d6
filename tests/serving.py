"""A real ASGI server, in a thread of the test: it uses the test's settings, clock and databases."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvicorn

#: Seconds after which an answer is none.
_PATIENCE = 60


@contextlib.contextmanager
def served(application: Any) -> Iterator[int]:
    """Serve an ASGI application on a free port of this machine, and yield the port."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)  # from here on, who connects waits for the server
    server = uvicorn.Server(
        uvicorn.Config(application, lifespan="off", log_level="warning", http="h11", ws="websockets-sansio")
    )
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(_PATIENCE)
        listening.close()


def get(port: int, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    """Ask the server; return status, fields (names in lower case) and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
