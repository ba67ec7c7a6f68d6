"""What prunes expired counters: batches with a rest after each."""

import pytest

from ratelimit_app import pruning
from ratelimit_app.models import Counter
from ratelimit_app.stores import Store, store_for
from tests.conftest import NOON

NOW = NOON * 1_000_000

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]


def make(number, *, expires_at=NOW):
    Counter.objects.bulk_create(
        Counter(key=f"old:{n}", window_start=1, count=1, expires_at=expires_at) for n in range(number)
    )


# Batches ------------------------------------------------------------------------------------------


def test_rest_is_in_proportion_to_the_batch_and_bounded(monkeypatch):
    store = store_for("ratelimit")
    readings, rests, batches = iter([0.0, 0.01, 5.0, 5.02, 6.0, 66.0, 70.0]), [], iter([10, 10, 3, 0])
    monkeypatch.setattr(pruning.clock, "monotonic", lambda: next(readings))
    monkeypatch.setattr(pruning.time, "sleep", rests.append)
    monkeypatch.setattr(Store, "prune", lambda self, now, batch_size: next(batches))
    assert list(pruning.batches(store, NOW, 10)) == [10, 10, 3]
    assert rests == [pytest.approx(0.01 * store.rest), pytest.approx(0.02 * store.rest), 1.0]


def test_who_stops_after_a_batch_needs_no_rest(monkeypatch):
    monkeypatch.setattr(pruning.time, "sleep", lambda seconds: pytest.fail("rested"))
    make(20)
    assert next(pruning.batches(store_for("ratelimit"), NOW, 10)) == 10
