"""Deadlines for what drivers wait for without an end: an answer, or a connection.

A driver waits in C, for whole seconds or for ever. One thread of the process watches those that wait, and
ends the wait of one whose time is over.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import TracebackType
from typing import TypeVar

from ratelimit_app import clock

T = TypeVar("T")


class Deadline:
    """A block that ``end`` is called for, in another thread, where it has not ended by an instant.

    ``at`` is a reading of ``clock.monotonic``; ``is_over`` tells whether ``end`` was called.
    """

    __slots__ = ("_end", "at", "is_over")

    def __init__(self, at: float, end: Callable[[], object]) -> None:
        self.at = at
        self.is_over = False
        self._end = end

    def __enter__(self) -> "Deadline":
        _watch.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _watch.remove(self)

    def pass_by(self) -> None:
        """End the block: to be called by the watch."""
        self.is_over = True
        with contextlib.suppress(Exception):  # it has ended by itself
            self._end()


def _start(run: Callable[[], object], name: str) -> threading.Thread | None:
    """Start a thread; return ``None`` where there can be none: too many, or the process is about to end."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


class _Watch:
    """The thread that waits for the next deadline, and the blocks that it watches."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._watched: set[Deadline] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def add(self, deadline: Deadline) -> None:
        with self._changed:
            self._watched.add(deadline)
            if self._thread is None:
                self._thread = _start(self._run, "ratelimit-deadlines")
            elif deadline.at < self._wakes_at:
                self._changed.notify()

    def remove(self, deadline: Deadline) -> None:
        with self._changed:
            self._watched.discard(deadline)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = clock.monotonic()
                for deadline in [each for each in self._watched if each.at <= now]:
                    # With the lock held: a block that is still watched still has its socket.
                    self._watched.discard(deadline)
                    deadline.pass_by()
                soonest = min((each.at for each in self._watched), default=None)
                # Who has no more to watch is woken by the next, which has to be paid for: once a wait.
                self._wakes_at = float("inf") if soonest is None else soonest
                self._changed.wait(None if soonest is None else soonest - now)


_watch = _Watch()


def _begin_anew() -> None:
    """Forget the watch of the parent process, whose thread does not come along."""
    global _watch
    _watch = _Watch()


os.register_at_fork(after_in_child=_begin_anew)


def cut(descriptor: int) -> None:
    """End what waits on a socket, for either side; its owner still has to close it."""
    with socket.socket(fileno=os.dup(descriptor)) as same:
        same.shutdown(socket.SHUT_RDWR)


def within(seconds: float, work: Callable[[], T], too_late: Callable[[T], object]) -> T:
    """Call ``work`` in a thread of its own; raise ``TimeoutError`` where it takes too long.

    ``too_late`` is then given what it returns in the end.
    """
    answer: Future[T] = Future()

    def run() -> None:
        try:
            made = work()
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(error)
            return
        if answer.set_running_or_notify_cancel():
            answer.set_result(made)
        else:
            too_late(made)

    if _start(run, "ratelimit-connect") is None:
        return work()
    try:
        return answer.result(max(0.0, seconds))
    except FutureTimeoutError:
        if answer.cancel():
            raise TimeoutError(f"nothing came within {seconds:.3f} seconds") from None
        return answer.result()
