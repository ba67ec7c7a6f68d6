"""Deleting the counters that count no more: batch by batch with a rest after each."""

import time
from collections.abc import Iterator

from ratelimit_app import clock
from ratelimit_app.stores import Store

#: Seconds that a rest takes at most, however long the batch before it has waited for something.
_LONGEST_REST = 1.0


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
