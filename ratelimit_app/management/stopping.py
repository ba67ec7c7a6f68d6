"""Signals that ask a command to end, heard between two steps of its work."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether the command was asked to end: ``by`` says by which signal."""

    by: signal.Signals | None = None

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Note a signal; the next one ends the process at once, as it would have without this."""
        self.by = signal.Signals(number)
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Stop]:
    """Hear Ctrl-C and SIGTERM within a block, unless whoever started the process has made it deaf to them."""
    stop, before = Stop(), {}
    if threading.current_thread() is threading.main_thread():  # no other may say what a signal does
        before = {number: signal.getsignal(number) for number in _SIGNALS}
    heard = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in heard:
        signal.signal(number, stop.hear)
    try:
        yield stop
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
