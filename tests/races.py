"""Many callers at once, in threads and in processes, released by one barrier."""

import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.conf import settings
from django.db import connections

#: Seconds after which a race that does not start or end has failed.
_PATIENCE = 120

#: Seconds after which a statement has: what others do on the machine may take their time.
PATIENCE = 60
_SCHEMES = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mysql"}


def in_threads(threads: int, work: Callable[[int], Any]) -> list[Any]:
    """Call ``work(0)`` to ``work(threads - 1)`` at the same moment; return what they return."""
    return _race(threads, work, threading.Barrier(threads))


def in_processes(
    processes: int, threads: int, work: str, *args: Any, frozen_at: float | None = None
) -> list[Any]:
    """Call a function in so many threads of so many processes at the same moment.

    ``work`` names the function as ``tests.module:function``; it is called as
    ``function(index, *args)``, each index once, on the databases of this test run. Returns what all
    of the calls return.
    """
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(processes * threads), context.Queue()
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    children = [
        context.Process(
            target=_child,
            args=(names, work, args, range(first, first + threads), frozen_at, barrier, answers),
        )
        for first in range(0, processes * threads, threads)
    ]
    for child in children:
        child.start()
    try:
        return [answer for _ in children for answer in answers.get(timeout=_PATIENCE)]
    finally:
        for child in children:
            child.join(_PATIENCE)
            child.terminate()


def environment() -> dict[str, str]:
    """Return the environment of a program that is to use the databases of this test run."""
    return os.environ | {"DATABASE_URL": _url("default"), "RATELIMIT_DATABASE_URL": _url("ratelimit")}


def _url(alias: str) -> str:
    connection = connections[alias]
    found = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{found['NAME']}"
    password = f":{found['PASSWORD']}" if found["PASSWORD"] else ""
    server = f"{found['USER']}{password}@{found['HOST']}:{found['PORT']}"
    return f"{_SCHEMES[connection.vendor]}://{server}/{found['NAME']}"


def _child(
    names: dict[str, str],
    work: str,
    args: tuple[Any, ...],
    indexes: range,
    frozen_at: float | None,
    barrier: Any,
    answers: Any,
) -> None:
    import django

    django.setup()
    settings.RATELIMIT_TIMEOUT = PATIENCE
    for alias, name in names.items():
        connections.databases[alias]["NAME"] = name
    from ratelimit_app.testing import frozen_time

    module, _, function = work.partition(":")
    call = getattr(importlib.import_module(module), function)
    try:
        if frozen_at is None:
            answers.put(_race(len(indexes), lambda i: call(indexes[i], *args), barrier))
        else:
            with frozen_time(frozen_at):
                answers.put(_race(len(indexes), lambda i: call(indexes[i], *args), barrier))
    except BaseException as error:
        barrier.abort()
        answers.put([f"{type(error).__name__}: {error}"])
        raise


def _race(threads: int, work: Callable[[int], Any], barrier: Any) -> list[Any]:
    def run(index: int) -> Any:
        barrier.wait(_PATIENCE)
        try:
            return work(index)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(run, range(threads)))
