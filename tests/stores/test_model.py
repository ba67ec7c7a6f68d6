"""A model in plain Python and the store of the database under test are told the same, and must agree."""

import dataclasses

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ratelimit_app.models import Counter
from ratelimit_app.stores import Advance, Outcome, Row, store_for
from ratelimit_app.stores.rows import MAX_COUNT

ROWS = st.builds(Row, st.sampled_from(["a", "A", "b"]), st.sampled_from([0, 60]))
INSTANTS = st.integers(0, 20)
FEW = st.integers(1, 4)
ADVANCES = st.builds(
    Advance,
    row=ROWS,
    floor=st.just(0) | st.integers(0, 10),
    amount=FEW | st.just(2**50),
    ceiling=st.integers(1, 12) | st.just(MAX_COUNT),
    expires_at=INSTANTS,
    count_denied=st.booleans(),
)


class Model:
    """What the counters are, by the words of the contract."""

    def __init__(self):
        self.rows = {}

    def count(self, row):
        return self.rows.get(row, (0, None))[0]

    def fits(self, advance, ceiling):
        return max(self.count(advance.row), advance.floor) + advance.amount <= ceiling

    def advance_all(self, advances):
        fits = [self.fits(advance, advance.ceiling) for advance in advances]
        for advance, fit in zip(advances, fits, strict=True):
            denied = advance.count_denied and not fit and self.fits(advance, MAX_COUNT)
            if all(fits) or denied:
                self.move(advance)
        return [Outcome(fit, self.count(each.row)) for each, fit in zip(advances, fits, strict=True)]

    def move(self, advance):
        count = max(self.count(advance.row), advance.floor) + advance.amount
        _, expires_at = self.rows.get(advance.row, (0, 0))
        self.rows[advance.row] = count, max(expires_at, advance.expires_at)

    def refund(self, row, amount):
        if row in self.rows:
            count, expires_at = self.rows[row]
            self.rows[row] = max(0, count - amount), expires_at

    def reset(self, key):
        self.rows = {row: values for row, values in self.rows.items() if row.key != key}

    def expired(self, now):
        return [row for row, (_, expires_at) in self.rows.items() if expires_at <= now]


class StoreAndModel(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        Counter.objects.all().delete()
        self.store, self.model = store_for("ratelimit"), Model()

    @rule(advance=ADVANCES)
    def advance(self, advance):
        assert [self.store.advance(advance)] == self.model.advance_all([advance])

    @rule(advances=st.lists(ADVANCES, max_size=4, unique_by=lambda advance: advance.row))
    def advance_all(self, advances):
        assert self.store.advance_all(advances) == self.model.advance_all(advances)

    @rule(advance=ADVANCES, times=FEW)
    def advance_again_and_again(self, advance, times):
        advance = dataclasses.replace(advance, floor=0, amount=1, ceiling=5)
        for _ in range(times):
            self.advance(advance)

    @rule(row=ROWS, amount=FEW)
    def refund(self, row, amount):
        self.store.refund(Advance(row, 0, amount, 1, 0))
        self.model.refund(row, amount)

    @rule(key=st.sampled_from("aAbc"))
    def reset(self, key):
        self.store.reset(key)
        self.model.reset(key)

    @rule(now=INSTANTS, batch_size=FEW)
    def prune(self, now, batch_size):
        expired = self.model.expired(now)
        assert self.store.count_expired(now) == len(expired)
        before = set(self.model.rows)
        assert self.store.prune(now, batch_size) == min(batch_size, len(expired))
        # Which of those that have expired together go first is left to the database.
        gone = before - {Row(*pk) for pk in Counter.objects.values_list("key", "window_start")}
        assert gone <= set(expired)
        for row in gone:
            del self.model.rows[row]

    @rule(rows=st.lists(ROWS, max_size=4))
    def read(self, rows):
        assert self.store.read(rows) == {row: self.model.count(row) for row in rows}

    @invariant()
    def rows_are_the_same(self):
        stored = {
            Row(row.key, row.window_start): (row.count, row.expires_at) for row in Counter.objects.all()
        }
        assert stored == self.model.rows


@pytest.mark.django_db
def test_store_does_what_the_model_does():
    run_state_machine_as_test(
        StoreAndModel,
        settings=settings(
            max_examples=200,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
