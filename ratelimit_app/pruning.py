"""Deleting the counters that count no more: batch by batch with a rest after each, or one now and then."""

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Iterator

from django.db import connections

from ratelimit_app import clock, windows
from ratelimit_app.calls import Receipt
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.reporting import report
from ratelimit_app.stores import Store, store_for

#: Seconds that a rest takes at most, however long the batch before it has waited for something.
_LONGEST_REST = 1.0

#: Held while a thread of this process prunes.
_pruning = threading.Lock()


def batches(store: Store, now: int, batch_size: int | None = None) -> Iterator[int]:
    """Delete what has expired by an instant until nothing is left; yield how many rows after each batch."""
    batch_size = batch_size or store.batch
    while True:
        begun = clock.monotonic()
        deleted = store.prune(now, batch_size)
        if not deleted:
            return
        took = clock.monotonic() - begun
        yield deleted
        time.sleep(min(store.rest * took, _LONGEST_REST))


def after(decision: Decision) -> None:
    """Prune a batch beside the call that was counted, as often as ``RATELIMIT_PRUNE_PROBABILITY`` says."""
    probability = conf.prune_probability
    if not probability or random.random() >= probability:  # noqa: S311 (guards nothing)
        return
    for part in decision.parts:
        if isinstance(part.receipt, Receipt) and not part.receipt.is_local:
            _begin(store_for(conf.database), windows.to_microseconds(part.at))
            return


def _begin(store: Store, now: int) -> None:
    """Prune a batch in a thread that nobody waits for, the end of the process neither."""
    if store.is_private() or not _pruning.acquire(blocking=False):
        return
    thread = threading.Thread(target=_prune, args=(store, now), name="ratelimit-prune", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # there are too many, or the process is about to end: it can wait
        _pruning.release()


def _prune(store: Store, now: int) -> None:
    try:
        with contextlib.closing(connections[store.alias]):  # the thread's own
            store.prune(now, store.batch)
    except Exception:
        report(logging.ERROR, "The counters on the database %r cannot be pruned", store.alias, exc_info=True)
    finally:
        _pruning.release()


def _begin_anew() -> None:
    """Forget the thread of the parent process, which does not come along."""
    global _pruning
    _pruning = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)
