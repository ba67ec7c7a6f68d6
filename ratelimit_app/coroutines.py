"""Functions for async callers, made of those that ask the database."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
T = TypeVar("T")


def in_thread(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a coroutine function that calls a function in the thread that Django has for such calls."""
    call = sync_to_async(function)

    @functools.wraps(function)
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return await call(*args, **kwargs)

    return called
