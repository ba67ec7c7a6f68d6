"""The end of a request: what is still open is settled, and what is held is given back.

Django tells of it in no one way. Whichever comes first ends the request, the others find nothing to do:

- the request is closed with its response, where that goes out and is no stream that fails under ASGI;
- ``request_finished`` is sent in the thread that had the request's database: all that is told of a response
  that is dropped because the client has left before it, and of what a stream has met itself;
- a stream that fails under ASGI ends, and that is all.
"""

import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase

from ratelimit_app import charging, ledger, limiter
from ratelimit_app.coroutines import in_thread


class _Here(threading.local):
    """The requests of this thread that have something to end: with a real server, one at a time."""

    def __init__(self) -> None:
        self.requests: weakref.WeakSet[HttpRequest] = weakref.WeakSet()


_here = _Here()


def expect(request: HttpRequest) -> None:
    """End a request when Django tells of its end, if one of its limits waits for that."""
    if request in _here.requests or not _is_pending(request):
        return
    _here.requests.add(request)
    close = request.close

    def close_and_end() -> None:
        try:
            close()
        finally:
            end(request)

    request.close = close_and_end  # type: ignore[method-assign]


def end(request: HttpRequest) -> None:
    """End a request; of one that was not answered, nothing is given back that may have been used."""
    _here.requests.discard(request)
    made = ledger.of(request)
    charging.settle(request, made.status)
    made.status = made.status or HTTPStatus.INTERNAL_SERVER_ERROR
    for entry in list(made.entries.values()):
        limiter.leave(entry.decision)


aend = in_thread(end)


def end_here(sender: type | None, **kwargs: Any) -> None:
    """End what this thread has begun, now that Django has finished with it."""
    if sender is None or not _here.requests:  # the test client's may be asked within another
        return
    for request in list(_here.requests):
        end(request)
    close_old_connections()  # Django has done so before


def with_stream(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Let a response that is streamed under ASGI end its request."""
    if isinstance(request, ASGIRequest) and isinstance(response, StreamingHttpResponse):
        parts: Any = response.streaming_content
        response.streaming_content = (_aparts if response.is_async else _parts)(request, parts)
    return response


def _parts(request: HttpRequest, parts: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from parts
    finally:
        end(request)


async def _aparts(request: HttpRequest, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    try:
        async for part in parts:
            yield part
    finally:
        if _is_pending(request):
            await aend(request)


def _is_pending(request: HttpRequest) -> bool:
    return any(map(charging.is_pending, ledger.of(request).entries.values()))
