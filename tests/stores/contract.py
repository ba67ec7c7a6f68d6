"""What every store must do; each vendor's test is a subclass with that vendor's own words and traps."""

import contextlib
import dataclasses
import itertools
import re

import pytest
from django.db import IntegrityError, OperationalError, connections
from django.test.utils import CaptureQueriesContext

from ratelimit_app import limiter
from ratelimit_app.algorithms import Weighed
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import MAX_QUOTA, Policy
from ratelimit_app.stores import Advance, Outcome, Row, store_for
from ratelimit_app.stores.rows import MAX_COUNT
from tests.algorithms import oracles
from tests.algorithms.oracles import Peek
from tests.conftest import NOON

ALIAS = "ratelimit"
ORDERS = list(itertools.permutations("abc"))


def advance(key="k", window_start=0, *, floor=0, amount=1, ceiling=5, expires_at=100, count_denied=False):
    return Advance(Row(key, window_start), floor, amount, ceiling, expires_at, count_denied)


def put(key="k", window_start=0, *, count=1, expires_at=100):
    Counter.objects.create(key=key, window_start=window_start, count=count, expires_at=expires_at)
    return Row(key, window_start)


def stored():
    """Return all rows, as ``(key, window_start)`` to ``(count, expires_at)``."""
    return {row.pk: (row.count, row.expires_at) for row in Counter.objects.all()}


def counts():
    return {row.key: row.count for row in Counter.objects.all()}


@contextlib.contextmanager
def locked(key):
    """Hold the row of a key in a transaction of another connection; yield what lets it go."""
    other = connections[ALIAS].copy()
    other.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    with other.cursor() as cursor:
        cursor.execute(
            "UPDATE ratelimit_app_counter SET count = 1 WHERE ratelimit_app_counter.key = %s", [key]
        )
    try:
        yield other.rollback
    finally:
        other.rollback()
        other.close()


class StoreContract:
    pytestmark = pytest.mark.django_db

    #: Where a trip costs nothing, a refusal may take a second statement.
    statements_when_refused = 1

    def never_wait(self, connection):
        """Make the statements of a connection fail at once where they meet a lock."""
        raise NotImplementedError

    def explain(self, sql):
        """Return the plan of a statement as text, by fresh statistics."""
        raise NotImplementedError

    @pytest.fixture
    def store(self):
        return store_for(ALIAS)

    @pytest.fixture
    def queries(self, store):
        return lambda: CaptureQueriesContext(store.connection())

    # One counter --------------------------------------------------------------------------------

    def test_advance_of_an_absent_row_begins_it(self, store):
        assert store.advance(advance(amount=3)) == Outcome(True, 3)
        assert stored() == {("k", 0): (3, 100)}

    def test_advance_adds_until_the_ceiling(self, store):
        outcomes = [store.advance(advance(amount=2)) for _ in range(3)]
        assert outcomes == [Outcome(True, 2), Outcome(True, 4), Outcome(False, 4)]
        assert store.advance(advance(amount=1)) == Outcome(True, 5)

    def test_advance_starts_from_the_floor_where_the_count_is_below_it(self, store):
        put(count=3)
        assert store.advance(advance(floor=10, amount=2, ceiling=12)) == Outcome(True, 12)
        assert store.advance(advance(floor=10, amount=2, ceiling=14)) == Outcome(True, 14)

    @pytest.mark.parametrize("step", [{"amount": 6}, {"floor": 5}, {"floor": 4, "amount": 2}])
    def test_advance_that_never_fits_leaves_no_row(self, store, step):
        assert store.advance(advance(**step)) == Outcome(False, 0)
        assert stored() == {}

    @pytest.mark.parametrize("step", [{"amount": 6}, {"amount": 3}, {"floor": 5}, {"floor": 4, "amount": 2}])
    def test_refusal_brings_the_count_that_it_met_and_changes_nothing(self, store, step):
        put(count=3)
        assert store.advance(advance(expires_at=200, **step)) == Outcome(False, 3)
        assert stored() == {("k", 0): (3, 100)}

    def test_refusal_may_meet_a_count_of_zero(self, store):
        put(count=0)
        assert store.advance(advance(amount=6)) == Outcome(False, 0)
        assert store.advance(advance(floor=5)) == Outcome(False, 0)

    def test_denied_call_is_counted_past_the_ceiling_where_asked(self, store):
        put(count=4)
        outcomes = [store.advance(advance(amount=2, count_denied=True)) for _ in range(2)]
        assert outcomes == [Outcome(False, 6), Outcome(False, 8)]
        assert counts() == {"k": 8}

    def test_first_call_is_counted_where_asked_though_it_never_fits(self, store):
        assert store.advance(advance(amount=9, count_denied=True)) == Outcome(False, 9)
        assert counts() == {"k": 9}

    def test_count_of_denied_calls_stays_within_the_column(self, store):
        put(count=MAX_COUNT - 1)
        steps = [advance(amount=amount, count_denied=True) for amount in (1, 1, MAX_QUOTA + 1)]
        assert [store.advance(step) for step in steps] == [Outcome(False, MAX_COUNT)] * 3
        assert counts() == {"k": MAX_COUNT}

    def test_expiry_only_grows(self, store):
        for expires_at in (100, 50, 200, 150):
            store.advance(advance(expires_at=expires_at))
        assert stored() == {("k", 0): (4, 200)}

    def test_windows_and_keys_have_rows_of_their_own(self, store):
        for step in (advance("a", 0), advance("a", 60), advance("b", 0), advance("a", -60), advance("a", 0)):
            store.advance(step)
        assert {pk: count for pk, (count, _) in stored().items()} == {
            ("a", -60): 1,
            ("a", 0): 2,
            ("a", 60): 1,
            ("b", 0): 1,
        }

    @pytest.mark.parametrize("table", oracles.ALL.values(), ids=oracles.ALL)
    def test_steps_through_the_store_have_the_published_outcomes(self, clock, table):
        limits = table.limits

        def ask(at, cost, key):
            clock.advance(NOON + at - clock.now)
            question = limiter.peek_all if isinstance(cost, Peek) else limiter.consume_all
            return question(dict.fromkeys(limits, key), cost=int(cost))

        assert oracles.play(table, ask) == table.steps

    @pytest.mark.parametrize(
        ("weighed", "weight", "scale", "part"),
        [
            (42, 45, 60, 32),
            (42, 60, 60, 42),
            (42, 0, 60, 0),
            (0, 45, 60, 0),
            (1, 1, 10**15, 1),
            (10**15 - 1, 3 * 10**15 - 1, 3 * 10**15, 10**15 - 1),
            (MAX_COUNT, 10**15, 3 * 10**15, -(-MAX_COUNT // 3)),
        ],
    )
    @pytest.mark.parametrize("count", [None, 3])
    def test_part_of_a_weighed_row_is_taken_off_the_ceiling(self, store, count, weighed, weight, scale, part):
        put("k", 60, count=weighed)
        if count is not None:
            put("k", 120, count=count)
        beside = Weighed(60, weight, scale)
        full = part + (count or 0)
        tight = dataclasses.replace(advance("k", 120, amount=2, ceiling=full + 1), weighed=beside)
        assert store.advance(tight) == Outcome(False, count or 0, weighed)
        assert store.look([tight]) == {tight.row: Outcome(False, count or 0, weighed)}
        enough = dataclasses.replace(tight, ceiling=full + 2)
        assert store.advance(enough) == Outcome(True, (count or 0) + 2, weighed)
        assert stored()["k", 120] == ((count or 0) + 2, 100)

    def test_denied_call_that_is_counted_beside_a_weighed_row_brings_both_counts(self, store):
        put("k", 60, count=10)
        step = dataclasses.replace(advance("k", 120, count_denied=True), weighed=Weighed(60, 1, 1))
        assert store.advance(step) == Outcome(False, 1, 10)
        assert store.advance_all([step, advance("other")]) == [Outcome(False, 2, 10), Outcome(True, 0)]

    def test_taking_beside_a_weighed_row_is_one_statement(self, store, queries):
        put("k", 60, count=10)
        beside = dataclasses.replace(advance("k", 120, ceiling=9), weighed=Weighed(60, 1, 2))
        for taken in (1, 2):
            with queries() as asked:
                assert store.advance(beside) == Outcome(True, taken, 10)
            assert len(asked) == 1

    def test_refusing_beside_a_weighed_row_is_one_statement_where_a_trip_costs(self, store, queries):
        put("k", 60, count=10)
        put("k", 120, count=2)
        full = dataclasses.replace(advance("k", 120, ceiling=7), weighed=Weighed(60, 1, 2))
        with queries() as asked:
            assert store.advance(full) == Outcome(False, 2, 10)
        assert len(asked) == self.statements_when_refused

    @pytest.mark.parametrize("count", [1, 2**31 - 2, 2**31 - 1, 2**31, MAX_QUOTA])
    @pytest.mark.parametrize("weighed", [0, 2**31 - 1, 2**31, MAX_QUOTA])
    @pytest.mark.parametrize("room", [0, 1])
    @pytest.mark.parametrize("first", [True, False])
    def test_large_counts_beside_each_other_come_back_whole(self, store, count, weighed, room, first):
        put("k", 60, count=weighed)
        if not first:
            put("k", 120, count=count)
        taken = count if first else count + 1
        step = advance(
            "k", 120, amount=count if first else 1, ceiling=taken + weighed - 1 + room, count_denied=True
        )
        step = dataclasses.replace(step, weighed=Weighed(60, 1, 1))
        assert store.advance(step) == Outcome(bool(room), taken, weighed)

    def test_taking_is_one_statement(self, store, queries):
        for _ in range(2):  # the row is new, and then it is not
            with queries() as asked:
                assert store.advance(advance()).fits
            assert len(asked) == 1

    def test_cost_of_many_units_is_one_statement(self, store, queries):
        with queries() as asked:
            assert store.advance_all([advance(amount=20, ceiling=20)]) == [Outcome(True, 20)]
        assert len(asked) == 1

    def test_refusing_is_one_statement_where_a_trip_costs(self, store, queries):
        put(count=5)
        with queries() as asked:
            assert not store.advance(advance()).fits
        assert len(asked) == self.statements_when_refused

    def test_refusing_what_never_fits_is_one_statement(self, store, queries):
        with queries() as asked:
            assert not store.advance(advance(amount=6)).fits
        assert len(asked) == 1

    # Several counters ---------------------------------------------------------------------------

    @pytest.mark.parametrize("order", ORDERS, ids="".join)
    def test_all_are_taken_and_answered_in_the_order_given(self, store, order):
        put("b", count=3)
        amounts = {"a": 1, "b": 2, "c": 4}
        outcomes = store.advance_all([advance(key, amount=amounts[key]) for key in order])
        after = {"a": 1, "b": 5, "c": 4}
        assert outcomes == [Outcome(True, after[key]) for key in order]
        assert counts() == after

    @pytest.mark.parametrize("full", ["a", "b", "c", "d"])
    @pytest.mark.parametrize("order", ["abcd", "dcba", "bdac"])
    def test_one_that_refuses_takes_nothing_and_leaves_no_row(self, store, order, full):
        met = {"a": 0, "b": 2, "c": 0, "d": 4, full: 5}
        for key in ("b", "d", full):
            if key not in counts():
                put(key, count=met[key])
        before = stored()
        outcomes = store.advance_all([advance(key, expires_at=200) for key in order])
        assert outcomes == [Outcome(key != full, met[key]) for key in order]
        assert stored() == before

    def test_refusal_of_several_brings_counts_below_their_floors_as_they_were(self, store):
        put("a", count=3)
        put("c", count=5)
        outcomes = store.advance_all([advance("a", floor=4), advance("b", floor=4), advance("c")])
        assert outcomes == [Outcome(True, 3), Outcome(True, 0), Outcome(False, 5)]

    @pytest.mark.parametrize("order", ORDERS, ids="".join)
    def test_one_that_never_fits_takes_nothing_from_the_others(self, store, order):
        put("a", count=2)
        steps = {"a": advance("a"), "b": advance("b", amount=6), "c": advance("c")}
        outcomes = store.advance_all([steps[key] for key in order])
        after = {"a": Outcome(True, 2), "b": Outcome(False, 0), "c": Outcome(True, 0)}
        assert outcomes == [after[key] for key in order]
        assert counts() == {"a": 2}

    @pytest.mark.parametrize("order", ORDERS, ids="".join)
    def test_of_several_only_what_refuses_and_counts_denied_calls_grows(self, store, order):
        put("b", count=5)
        steps = [advance(key, amount=2, count_denied=True) for key in order]
        after = {"a": Outcome(True, 0), "b": Outcome(False, 7), "c": Outcome(True, 0)}
        assert store.advance_all(steps) == [after[key] for key in order]
        assert counts() == {"b": 7}

    def test_each_that_refuses_and_counts_denied_calls_grows(self, store):
        put("a", count=5)
        put("b", count=4)
        steps = [advance("b", amount=2, count_denied=True), advance("a", count_denied=True), advance("c")]
        assert store.advance_all(steps) == [Outcome(False, 6), Outcome(False, 6), Outcome(True, 0)]
        assert counts() == {"a": 6, "b": 6}

    def test_one_that_never_fits_is_counted_where_asked(self, store):
        steps = [advance("a"), advance("b", amount=6, count_denied=True)]
        assert store.advance_all(steps) == [Outcome(True, 0), Outcome(False, 6)]
        assert counts() == {"b": 6}

    @pytest.mark.parametrize("order", ORDERS, ids="".join)
    def test_several_are_met_in_one_order_whatever_the_order_given(self, store, queries, order):
        with queries() as asked:
            store.advance_all([advance(f"key-{name}") for name in order])
        met = [found for query in asked for found in re.findall("key-[abc]", query["sql"])]
        assert list(dict.fromkeys(met)) == ["key-a", "key-b", "key-c"]

    def test_several_windows_of_one_key_are_several_counters(self, store):
        assert store.advance_all([advance("a", 60), advance("a", 0)]) == [Outcome(True, 1)] * 2
        assert sorted(stored()) == [("a", 0), ("a", 60)]

    def test_nothing_to_advance_is_no_statement(self, store, queries):
        with queries() as asked:
            assert store.advance_all([]) == []
        assert len(asked) == 0

    # Reading, giving back, forgetting -----------------------------------------------------------

    def test_read_of_an_absent_row_is_zero_and_makes_none(self, store):
        row = put("a", count=3)
        absent = [Row("a", 60), Row("A", 0), Row("b", 0)]
        assert store.read([row, *absent]) == {row: 3} | dict.fromkeys(absent, 0)
        assert counts() == {"a": 3}

    @pytest.mark.parametrize(("rows", "statements"), [(0, 0), (1, 1), (5, 1)])
    def test_read_of_any_number_of_rows_is_one_statement(self, store, queries, rows, statements):
        with queries() as asked:
            store.read([Row("k", start) for start in range(rows)])
        assert len(asked) == statements

    @pytest.mark.parametrize(("amount", "left"), [(1, 2), (2, 1), (3, 0), (4, 0), (MAX_QUOTA + 1, 0)])
    def test_refund_takes_units_off_down_to_zero(self, store, amount, left):
        put("b", count=3)
        put("a", count=3)
        store.refund(advance("a", amount=amount))
        assert stored() == {("a", 0): (left, 100), ("b", 0): (3, 100)}

    def test_refund_of_an_absent_row_makes_none(self, store):
        store.refund(advance("k"))
        assert stored() == {}

    def test_reset_forgets_all_windows_of_its_key_and_no_other(self, store):
        others = ["K", "k1", "k:1", "_", "%"]
        for key in [*others, "k"]:
            put(key, 0)
        put("k", 60)
        put("k", -60)
        store.reset("k")
        assert sorted(counts()) == sorted(others)

    def test_prune_goes_by_batches_until_nothing_has_expired(self, store):
        for start in range(5):
            put("old", start, expires_at=10)
        put("new", expires_at=11)
        assert [store.prune(10, 2) for _ in range(4)] == [2, 2, 1, 0]
        assert counts() == {"new": 1}

    @pytest.mark.parametrize(("now", "left"), [(9, ["a", "b", "c"]), (10, ["b", "c"]), (12, [])])
    def test_prune_takes_a_row_from_the_instant_it_expires(self, store, now, left):
        for key, expires_at in (("a", 10), ("b", 11), ("c", 12)):
            put(key, expires_at=expires_at)
        expired = 3 - len(left)
        assert store.count_expired(now) == expired
        assert store.has_expired(now) == bool(expired)
        assert store.prune(now, 100) == expired
        assert not store.has_expired(now)
        assert sorted(counts()) == left

    @pytest.mark.django_db(transaction=True)
    def test_prune_finds_expired_rows_by_the_index(self, store, queries):
        Counter.objects.bulk_create(
            Counter(key=f"k{i}", window_start=0, count=1, expires_at=i) for i in range(3_000)
        )
        LoggedCall.objects.bulk_create(
            LoggedCall(key=f"k{i}", sequence=1, units=1, expires_at=i) for i in range(3_000)
        )
        with queries() as asked:
            assert store.prune(10, 14) == 14
        for table, index in {
            "counter": "ratelimit_expires_at",
            "loggedcall": "ratelimit_log_expires_at",
        }.items():
            named = [query["sql"] for query in asked if f"ratelimit_app_{table}" in query["sql"]]
            plan = self.explain(next(sql for sql in named if "expires_at" in sql))
            assert index in plan
            assert "SCAN " not in plan  # SQLite's word for reading all of an index
            assert "Seq Scan" not in plan

    # Others at work -----------------------------------------------------------------------------

    @pytest.fixture
    def impatient(self, store):
        """Let this test's own connection never wait for a lock; return its statements, as they are sent."""
        connection, sent = store.connection(), []
        self.never_wait(connection)

        def note(execute, sql, params, many, context):
            sent.append(sql)
            return execute(sql, params, many, context)

        with connection.execute_wrapper(note):
            yield sent
        connection.close()

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("others", [[], ["a"]], ids=["one", "several"])
    def test_statement_that_meets_a_lock_is_sent_again(self, store, impatient, settings, others):
        settings.RATELIMIT_TIMEOUT = 60
        put("k", count=3)
        steps = [advance(key) for key in [*others, "k"]]
        with locked("k") as release:
            store.is_contention = release_at(store.is_contention, release)
            outcomes = store.advance_all(steps)
        assert outcomes == [Outcome(True, 1)] * len(others) + [Outcome(True, 4)]
        assert counts() == dict.fromkeys(others, 1) | {"k": 4}

    @pytest.mark.django_db(transaction=True)
    def test_lock_that_stays_is_an_error_after_the_timeout(self, store, impatient, settings):
        settings.RATELIMIT_TIMEOUT = 0.05
        put()
        impatient.clear()
        with locked("k"), pytest.raises(OperationalError):
            store.advance(advance())
        assert len(impatient) > 1
        assert counts() == {"k": 1}

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("others", [[], ["a"]], ids=["one", "several"])
    def test_lock_that_stays_is_reported_as_one_and_the_call_refused(
        self, clock, impatient, settings, caplog, others
    ):
        settings.RATELIMIT_TIMEOUT = 0.05
        policies = [Policy.parse("5/min", name=name) for name in [*others, "k"]]
        limiter.consume(policies[-1], "who")
        (key,) = counts()
        with locked(key):
            decision = limiter.consume_all(dict.fromkeys(policies, "who"))
        assert (decision.allowed, decision.unavailable, decision.retry_after) == (False, True, 1)
        (record,) = caplog.records
        assert record.levelname == "ERROR"
        assert "was locked for too long: calls go by their limits' on_error" in record.message
        assert counts() == {key: 1}

    @pytest.mark.django_db(transaction=True)
    def test_error_that_is_no_contention_is_raised_at_once(self, store, impatient):
        with pytest.raises(IntegrityError):
            store.advance(advance(expires_at=None))
        assert len(impatient) == 1
        assert store.advance(advance()).fits


def release_at(is_contention, release):
    """Let a lock go when a statement has met it."""

    def judge(error):
        release()
        return is_contention(error)

    return judge
