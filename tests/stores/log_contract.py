"""What every store must do with a log: a counter whose units count until their entry has expired."""

import dataclasses

import pytest

from ratelimit_app.algorithms import Logged
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.stores import Outcome, Row
from tests.stores.contract import advance

#: How long an entry counts.
LENGTH = 100


def log(now=0, key="k", **fields):
    """Return an advance that is logged at an instant."""
    step = advance(key, expires_at=1_000, **fields)
    return dataclasses.replace(step, logged=Logged(now, now + LENGTH))


def held(now=0, key="k", entry=0, **fields):
    """Return an advance of what is only held; to refund it takes the number of its entry."""
    step = log(now, key, **fields)
    return dataclasses.replace(step, logged=dataclasses.replace(step.logged, is_held=True, entry=entry))


def entries(key="k"):
    """Return the entries of a log, as ``(sequence, units, expires_at)``."""
    rows = LoggedCall.objects.filter(key=key).order_by("sequence")
    return list(rows.values_list("sequence", "units", "expires_at"))


def everything():
    return list(Counter.objects.order_by("pk").values_list()), list(
        LoggedCall.objects.order_by("pk").values_list()
    )


class LogContract:
    def test_each_call_is_an_entry_with_the_running_total(self, store):
        outcomes = [store.advance(log(now, amount=amount)) for now, amount in ((0, 1), (10, 2), (10, 2))]
        assert outcomes == [
            Outcome(True, 1, empty_at=100, more_at=100),
            Outcome(True, 3, empty_at=110, more_at=100),
            Outcome(True, 5, empty_at=110, more_at=100),
        ]
        assert entries() == [(1, 1, 100), (3, 2, 110), (5, 2, 110)]

    def test_refusal_tells_when_there_will_be_room_and_leaves_no_trace(self, store):
        for now, amount in ((0, 1), (10, 3), (20, 1)):
            store.advance(log(now, amount=amount))
        before = everything()
        refused = {amount: store.advance(log(50, amount=amount)) for amount in (1, 2, 4, 5, 6)}
        room = {1: 100, 2: 110, 4: 110, 5: 120, 6: 0}
        assert refused == {
            amount: Outcome(False, 5, empty_at=120, room_at=at, more_at=100) for amount, at in room.items()
        }
        for amount, outcome in refused.items():
            step = log(50, amount=amount)
            assert store.look([step]) == {step.row: outcome}
        assert everything() == before

    def test_entry_counts_until_its_expiry_and_no_longer(self, store):
        store.advance(log(0, amount=5))
        assert not store.advance(log(99)).fits
        assert store.advance(log(100)) == Outcome(True, 1, empty_at=200, more_at=200)
        assert store.look([log(200)])[Row("k", 0)] == Outcome(True, 0)

    def test_logs_of_other_keys_are_not_met(self, store):
        store.advance(log(0, "j", amount=4))
        store.advance(log(0, "l", amount=5))
        assert store.advance(log(50, "k", amount=5)) == Outcome(True, 5, empty_at=150, more_at=150)

    def test_entries_expire_in_their_order_though_the_clock_steps_back(self, store):
        store.advance(log(50, amount=2))
        assert store.advance(log(10, amount=2)) == Outcome(True, 4, empty_at=150, more_at=150)
        assert store.advance(log(149, amount=2)) == Outcome(False, 4, empty_at=150, room_at=150, more_at=150)

    def test_denied_calls_are_logged_where_asked(self, store):
        steps = [log(now, amount=3, count_denied=True) for now in (0, 10, 20)]
        assert [store.advance(step) for step in steps] == [
            Outcome(True, 3, empty_at=100, more_at=100),
            Outcome(False, 6, empty_at=110, room_at=110, more_at=100),
            Outcome(False, 9, empty_at=120, room_at=120, more_at=110),
        ]
        assert [units for _, units, _ in entries()] == [3, 3, 3]

    @pytest.mark.parametrize(
        ("ceiling", "more_at"), [(9, 100), (5, 110), (4, 110), (3, 120), (2, 120), (1, 130)]
    )
    @pytest.mark.parametrize("amount", [1, 9])
    def test_more_comes_when_enough_has_expired_of_more_than_there_is(self, store, ceiling, more_at, amount):
        for now, units in ((0, 2), (10, 2), (20, 2), (30, 1)):
            store.advance(log(now, amount=units, ceiling=9))
        step = log(50, amount=amount, ceiling=ceiling)
        assert store.look([step])[step.row].more_at == more_at
        assert store.advance_all([step, log(50, "other", amount=9, ceiling=1)])[0].more_at == more_at

    def test_looking_into_a_log_with_room_or_at_its_quota_is_one_statement(self, store, queries):
        store.advance(log(0, amount=4))
        for amount, statements in ((1, 1), (2, 2)):
            with queries() as asked:
                assert store.look([log(50, amount=amount)])[Row("k", 0)].more_at == 100
            assert len(asked) == statements

    def test_denied_calls_are_logged_no_further_than_asked(self, store):
        step = dataclasses.replace(log(amount=3, count_denied=True), most=6)
        assert [store.advance(step).count for _ in range(3)] == [3, 6, 6]
        assert entries() == [(3, 3, 100), (6, 3, 100)]
        assert store.advance(dataclasses.replace(step, amount=1, ceiling=7, most=7)) == Outcome(
            True, 7, empty_at=100, more_at=100
        )

    # What is held -------------------------------------------------------------------------------

    def test_what_is_held_counts_until_it_is_given_back(self, store):
        first, second = store.advance(held(0, amount=2)), store.advance(held(10, amount=3))
        assert (first.count, second.count) == (2, 5)
        assert not store.advance(held(20)).fits
        store.refund(held(0, entry=first.entry))
        assert store.advance(held(20, amount=2)).count == 5
        store.refund(held(0, entry=first.entry))  # again: there is nothing left of it
        assert not store.advance(held(20)).fits

    @pytest.mark.parametrize("forget", ["prune", "reset"])
    def test_late_return_gives_back_nothing_of_a_log_that_has_begun_anew(self, store, forget):
        old = store.advance(held(0, amount=5))
        if forget == "prune":
            store.prune(1_000, 100)
        else:
            store.reset("k")
        assert store.advance(held(1_500, amount=5)).entry == old.entry
        store.refund(held(0, entry=old.entry))
        assert not store.advance(held(1_500)).fits

    def test_what_nobody_gives_back_expires_by_itself(self, store):
        store.advance(held(0, amount=2))
        store.advance(held(50, amount=3))
        assert store.advance(held(99, amount=2)) == Outcome(False, 5, empty_at=150, room_at=100, more_at=100)
        assert store.advance(held(99, amount=3)) == Outcome(False, 5, empty_at=150, room_at=150, more_at=100)
        assert store.advance(held(100, amount=2)).fits

    def test_what_is_held_expires_at_its_own_time_though_the_clock_has_stepped_back(self, store):
        store.advance(held(50, amount=4))
        assert store.advance(held(10)).fits
        assert store.advance(held(11)) == Outcome(False, 5, empty_at=150, room_at=110, more_at=110)

    @pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
    def test_refusal_holds_nothing(self, store, several):
        store.advance(held(0, "b", amount=5))
        before = everything()
        steps = [held(10, "a"), held(10, "b")] if several else [held(10, "b")]
        assert not store.advance_all(steps)[-1].fits
        assert everything() == before

    # Several ------------------------------------------------------------------------------------

    def test_several_with_logs_are_taken_together(self, store):
        steps = [log(0, "b", amount=2), advance("a"), log(0, "c")]
        assert store.advance_all(steps) == [
            Outcome(True, 2, empty_at=100, more_at=100),
            Outcome(True, 1),
            Outcome(True, 1, empty_at=100, more_at=100),
        ]

    @pytest.mark.parametrize("full", ["a", "b", "c", "d"])
    def test_one_that_refuses_takes_nothing_from_the_others(self, store, full):
        kinds = {"a": log, "b": advance_at, "c": log, "d": advance_at}
        store.advance(kinds[full](0, full, amount=5))
        before = everything()
        outcomes = store.advance_all([kind(50, key) for key, kind in kinds.items()])
        assert [outcome.fits for outcome in outcomes] == [key != full for key in kinds]
        assert [outcome.count for outcome in outcomes] == [5 * (key == full) for key in kinds]
        assert everything() == before

    def test_of_several_only_what_refuses_and_counts_denied_calls_grows(self, store):
        store.advance(log(0, "b", amount=5))
        steps = [log(50, key, count_denied=True) for key in "abc"]
        outcomes = store.advance_all(steps)
        assert outcomes[1] == Outcome(False, 6, empty_at=150, room_at=100, more_at=100)
        assert [outcome.count for outcome in outcomes] == [0, 6, 0]
        assert [len(entries(key)) for key in "abc"] == [0, 2, 0]

    # Giving back, forgetting --------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("amount", "left"),
        [
            (1, [(1, 1, 100), (4, 3, 110), (5, 1, 120)]),
            (2, [(1, 1, 100), (4, 3, 110)]),
            (3, [(1, 1, 100), (3, 2, 110)]),
            (5, [(1, 1, 100)]),
            (6, []),
            (10**9, []),
        ],
    )
    def test_refund_takes_the_newest_units_off(self, store, amount, left):
        for now, units in ((0, 1), (10, 3), (20, 2)):
            store.advance(log(now, amount=units, ceiling=6))
        store.refund(log(30, amount=amount))
        assert entries() == left
        used = sum(units for _, units, _ in left)
        more_at = 100 if left else 140
        assert store.advance(log(40, ceiling=6)) == Outcome(True, used + 1, empty_at=140, more_at=more_at)

    def test_refund_gives_back_nothing_that_has_expired(self, store):
        store.advance(log(0, amount=4))
        store.advance(log(50))
        store.refund(log(120, amount=3))
        assert store.look([log(120)])[Row("k", 0)].count == 0
        assert store.advance(log(120, amount=5)) == Outcome(True, 5, empty_at=220, more_at=220)

    def test_refund_takes_nothing_off_a_log_that_has_expired(self, store):
        store.advance(log(0, amount=4))
        before = everything()
        store.refund(log(120, amount=3))
        assert everything() == before

    @pytest.mark.parametrize(
        ("until", "amount", "left"),
        [
            (99, 2, [(1, 1, 100), (4, 3, 110), (6, 2, 120)]),
            (100, 1, [(3, 3, 110), (5, 2, 120)]),
            (110, 2, [(1, 1, 100), (2, 1, 110), (4, 2, 120)]),
            (110, 3, [(1, 1, 100), (3, 2, 120)]),
            (119, 9, [(2, 2, 120)]),
            (120, 2, [(1, 1, 100), (4, 3, 110)]),
        ],
    )
    def test_refund_leaves_what_expires_later_in_its_order(self, store, until, amount, left):
        for now, units in ((0, 1), (10, 3), (20, 2)):
            store.advance(log(now, amount=units, ceiling=6))
        step = log(30, amount=amount)
        store.refund(dataclasses.replace(step, logged=Logged(30, until)))
        assert entries() == left
        used = sum(units for _, units, _ in left)
        assert store.advance(log(40, ceiling=6, amount=6 - used + 1)).fits is False
        more_at = left[0][2]
        assert store.advance(log(40, ceiling=7)) == Outcome(True, used + 1, empty_at=140, more_at=more_at)

    def test_refund_of_an_absent_log_makes_none(self, store):
        store.refund(log())
        assert everything() == ([], [])

    def test_reset_forgets_the_entries_of_its_key_and_no_other(self, store):
        for key in ("k", "K", "k:"):
            store.advance(log(key=key, amount=5))
        store.reset("k")
        assert [bool(entries(key)) for key in ("k", "K", "k:")] == [False, True, True]
        assert store.advance(log(amount=5)).fits

    def test_log_whose_head_is_gone_begins_anew(self, store):
        store.advance(log(0, amount=2))
        Counter.objects.all().delete()
        assert store.advance(log(50)) == Outcome(True, 1, empty_at=150, more_at=150)
        assert entries() == [(1, 1, 150)]

    @pytest.mark.parametrize("kind", [log, held], ids=["log", "held"])
    @pytest.mark.parametrize("total", [1, 2, 3, 4])
    @pytest.mark.parametrize(("now", "live"), [(50, 4), (105, 2), (500, 0)], ids=["all", "some", "none"])
    def test_log_whose_head_was_set_back_goes_on(self, store, kind, total, now, live):
        for at, amount in ((0, 2), (10, 1), (20, 1)):
            store.advance(kind(at, amount=amount, ceiling=6))
        Counter.objects.update(count=total)
        for taken in range(1, 7 - live):
            assert store.advance_all([kind(now, ceiling=6)])[0].count == live + taken
            assert entries()[-1] == (4 + taken, 1, now + LENGTH)
        assert not store.advance(kind(now, ceiling=6)).fits
        assert [row.count for row in Counter.objects.all()] == [10 - live]

    @pytest.mark.parametrize("batch_size", [1, 2, 100])
    def test_pruning_of_expired_entries_changes_no_outcome(self, store, batch_size):
        for now in (0, 10, 20, 30):
            store.advance(log(now))
        assert store.count_expired(115) == 2
        assert store.prune(115, batch_size) == min(batch_size, 2)
        assert store.look([log(115, amount=4)])[Row("k", 0)] == Outcome(
            False, 2, empty_at=130, room_at=120, more_at=120
        )
        assert store.advance(log(115, amount=3)) == Outcome(True, 5, empty_at=215, more_at=120)

    def test_log_is_pruned_whole_when_all_of_it_has_expired(self, store):
        for now in (0, 10):
            store.advance(log(now))
        assert store.prune(1_000, 100) == 3
        assert everything() == ([], [])

    @pytest.mark.django_db(transaction=True)
    def test_decision_reads_no_more_rows_of_a_long_log(self, store, queries):
        LoggedCall.objects.bulk_create(
            LoggedCall(key="k", sequence=number, units=1, expires_at=100 + number)
            for number in range(1, 3_001)
        )
        Counter.objects.create(key="k", window_start=0, count=3_000, expires_at=10_000)
        step = log(1_600, ceiling=1_600)
        with queries() as asked:
            assert store.look([dataclasses.replace(step, amount=200)])[step.row].room_at == 1_700
        for query in asked:
            plan = self.explain(query["sql"])
            assert "SCAN c" not in plan  # SQLite's word for reading all of an index
            assert "Seq Scan" not in plan
            assert "Sort" not in plan
            assert "TEMP B-TREE" not in plan


def advance_at(now, key, **fields):
    return advance(key, expires_at=1_000, **fields)
