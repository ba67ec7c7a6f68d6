"""Functions for async callers, made of those that ask the database."""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(
    function: Callable[P, T], *, undo: Callable[[T], object] | None = None
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a coroutine function that calls a function in the thread that Django has for such calls.

    A thread cannot be cancelled: a caller that is waits for its end, and then ``undo`` is given what the
    function has returned, because nobody else will have it.
    """
    call = sync_to_async(function)

    @functools.wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        running = asyncio.ensure_future(call(*args, **kwargs))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await _end_of(running)
            if undo and running.exception() is None:
                await _end_of(asyncio.ensure_future(sync_to_async(undo)(running.result())))
            raise

    return called


async def _end_of(running: "asyncio.Future[Any]") -> None:
    """Wait for what goes on in a thread, however often the waiting is cancelled."""
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([running])
