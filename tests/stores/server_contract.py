"""What a store on a database server must do besides: count apart from the caller's transaction."""

import contextlib
import gc
import threading
import time

import pytest
from asgiref.sync import async_to_sync
from django.db import DatabaseError, close_old_connections, connections, transaction
from model_bakery import baker

from ratelimit_app import limiter, snapshots
from ratelimit_app.models import Limit
from ratelimit_app.stores import Outcome, TimeOver
from ratelimit_app.stores.committing import in_transaction
from tests.races import in_threads
from tests.stores.contract import ALIAS, StoreContract, advance, counts, locked, put

#: Seconds after which something that was to happen will not.
_PATIENCE = 30

_SET = "UPDATE ratelimit_app_counter SET count = 3 WHERE ratelimit_app_counter.key = %s"


@contextlib.contextmanager
def in_a_transaction_beside():
    """Yield the cursor of another connection, in a transaction; commit it."""
    other = connections[ALIAS].copy()
    other.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
    try:
        with other.cursor() as cursor:
            yield cursor
        other.commit()
    finally:
        other.close()


class ServerStoreContract(StoreContract):
    #: What ends a connection, by its number.
    end_session = ""

    def hardly_wait(self, connection):
        """Make the statements of a connection fail soon where they meet a lock that they may pass over."""
        self.never_wait(connection)

    def session(self, connection):
        """Return the server's own number for a connection."""
        raise NotImplementedError

    def sessions(self, cursor):
        """Return the numbers of all connections that the server has."""
        raise NotImplementedError

    def waits(self, cursor, session):
        """Tell whether a connection waits for a lock."""
        raise NotImplementedError

    def outlive(self, cursor):
        """Have the server end the other transaction where this one meets a deadlock."""
        raise NotImplementedError

    def end(self, session):
        """Let the server end a connection."""
        with connections["default"].cursor() as cursor:
            cursor.execute(self.end_session, [session])
        assert self.is_gone(session)

    def is_gone(self, session):
        """Wait until the server has ended a connection; return whether it did."""
        deadline = time.monotonic() + _PATIENCE
        with connections["default"].cursor() as cursor:
            while time.monotonic() < deadline:
                if session not in self.sessions(cursor):
                    return True
        return False

    # The caller's transaction -------------------------------------------------------------------

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize("keys", ["k", "kl"], ids=["one", "several"])
    def test_count_stays_though_the_caller_rolls_back(self, store, keys):
        for _ in range(2):
            with transaction.atomic(using=ALIAS):
                store.advance_all([advance(key) for key in keys])
                transaction.set_rollback(True, using=ALIAS)
        assert counts() == dict.fromkeys(keys, 2)

    @pytest.mark.django_db(transaction=True)
    def test_callers_transaction_goes_on_after_a_count_and_a_refusal(self, store):
        with transaction.atomic(using=ALIAS):
            assert store.advance(advance(ceiling=1)).fits
            assert not store.advance(advance(ceiling=1)).fits
            Limit.objects.using(ALIAS).create(name="mine", rate="5/m")
        assert Limit.objects.using(ALIAS).filter(name="mine").exists()
        assert connections[ALIAS].get_autocommit()

    @pytest.mark.django_db(transaction=True)
    def test_callers_transaction_goes_on_after_counting_has_failed(self, store):
        with transaction.atomic(using=ALIAS):
            Limit.objects.using(ALIAS).create(name="mine", rate="5/m")
            with pytest.raises(Exception, match=r"expires_at"):
                store.advance(advance(expires_at=None))
            assert store.advance(advance()).fits
        assert Limit.objects.using(ALIAS).filter(name="mine").exists()

    @pytest.mark.django_db(transaction=True)
    def test_no_counter_is_locked_while_the_callers_transaction_is_open(self, store):
        def count(index):
            self.never_wait(connections[ALIAS])
            return store.advance(advance()).count

        with transaction.atomic(using=ALIAS):
            assert store.advance(advance()).count == 1
            assert in_threads(1, count) == [2]
            assert store.advance(advance()).count == 3

    @pytest.mark.django_db(transaction=True)
    def test_counts_of_others_are_seen_though_the_callers_snapshot_is_older(self, store):
        with transaction.atomic(using=ALIAS):
            counts()
            in_threads(1, lambda index: [store.advance(advance()) for _ in range(5)])
            assert store.advance(advance()) == Outcome(False, 5)

    @pytest.mark.django_db(transaction=True)
    def test_counting_in_a_transaction_is_one_statement_too(self, store, queries):
        with transaction.atomic(using=ALIAS):
            store.advance(advance())
            with queries() as asked:
                store.advance(advance())
        assert len(asked) == 1

    # The second connection ----------------------------------------------------------------------

    @pytest.mark.django_db(transaction=True)
    def test_second_connection_is_only_for_counts_inside_a_transaction(self, store):
        with transaction.atomic(using=ALIAS):
            assert store.connection() is not connections[ALIAS]
        assert store.connection() is connections[ALIAS]

    @pytest.mark.django_db(transaction=True)
    def test_second_connection_is_kept_for_the_next_count_and_the_next_transaction(self, store):
        sessions = []
        for _ in range(2):
            with transaction.atomic(using=ALIAS):
                for _ in range(2):
                    store.advance(advance())
                    sessions.append(self.session(store.connection()))
        assert len(set(sessions)) == 1

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        "close",
        [lambda: connections[ALIAS].close(), close_old_connections],
        ids=["by itself", "after a request"],
    )
    def test_second_connection_is_closed_with_the_first(self, store, close):
        with transaction.atomic(using=ALIAS):
            store.advance(advance())
            sessions = [self.session(connection) for connection in (connections[ALIAS], store.connection())]
        close()
        assert all(self.is_gone(session) for session in sessions)
        with transaction.atomic(using=ALIAS):
            assert store.advance(advance()).count == 2

    def lost_thread(self, store):
        """Run a thread that counts in a transaction and closes nothing; return its second session."""
        sessions = []

        def count():
            first = connections[ALIAS]
            with transaction.atomic(using=ALIAS):
                store.advance(advance())
                sessions.append(self.session(store.connection()))
            first.connection.close()  # the driver's, so that the second is not told

        thread = threading.Thread(target=count)
        thread.start()
        thread.join(_PATIENCE)
        return sessions[0]

    @pytest.mark.django_db(transaction=True)
    def test_second_connection_ends_with_its_thread(self, store):
        session = self.lost_thread(store)
        gc.collect()
        assert self.is_gone(session)

    @pytest.mark.django_db(transaction=True)
    def test_second_connection_that_is_collected_in_an_event_loop_ends_too(self, store):
        async def collect():
            gc.collect()

        gc.disable()
        try:
            session = self.lost_thread(store)
            async_to_sync(collect)()
        finally:
            gc.enable()
        assert self.is_gone(session)

    @pytest.mark.django_db(transaction=True)
    def test_connection_that_the_server_has_ended_is_opened_anew(self, store):
        store.advance(advance())
        self.end(self.session(store.connection()))
        assert store.advance(advance()) == Outcome(True, 2)

    @pytest.mark.django_db(transaction=True)
    def test_second_connection_that_the_server_has_ended_is_opened_anew(self, store):
        with transaction.atomic(using=ALIAS):
            store.advance(advance())
            self.end(self.session(store.connection()))
            assert store.advance(advance()) == Outcome(True, 2)

    @pytest.mark.django_db(transaction=True)
    def test_connection_that_the_server_ends_at_work_is_opened_anew(self):
        connection = connections[ALIAS]

        def work():
            put("k")
            self.end(self.session(connection))
            put("l")

        with pytest.raises(DatabaseError):
            in_transaction(connection, work)
        assert counts() == {}
        assert connection.get_autocommit()

    # Others at work, and the clock --------------------------------------------------------------

    @pytest.mark.django_db(transaction=True)
    def test_prune_passes_over_what_others_hold(self, store):
        self.hardly_wait(store.connection())
        for key in "abc":
            put(key, expires_at=10)
        with locked("b"):
            assert store.prune(10, 2) == 2
            assert store.prune(10, 2) == 0
        assert counts() == {"b": 1}
        store.connection().close()

    @pytest.mark.django_db(transaction=True)
    def test_decision_that_meets_a_deadlock_is_made_again(self, store, settings):
        put("a")
        put("b")
        held, sessions, errors, is_contention = threading.Event(), [], [], store.is_contention

        def judge(error):
            errors.append(str(error).lower())
            return is_contention(error)

        def decide():  # locks a, and waits for b
            store.connection().ensure_connection()
            sessions.append(self.session(store.connection()))
            assert held.wait(_PATIENCE)
            return store.advance_all([advance("b"), advance("a")])

        def cross():  # holds b, and waits for a
            with connections[ALIAS].cursor() as watching, in_a_transaction_beside() as other:
                self.outlive(other)
                other.execute(_SET, ["b"])
                held.set()
                deadline = time.monotonic() + _PATIENCE
                while not (sessions and self.waits(watching, sessions[0])):
                    assert time.monotonic() < deadline
                other.execute(_SET, ["a"])

        store.is_contention = judge
        outcomes, _ = in_threads(2, lambda index: cross() if index else decide())
        assert len(errors) == 1
        assert "deadlock" in errors[0]
        assert outcomes == [Outcome(True, 4)] * 2
        assert [counts()[key] for key in "ab"] == [4, 4]

    @pytest.mark.django_db(transaction=True)
    def test_wait_for_a_lock_ends_in_time_where_the_driver_would_wait_on(self, store, settings):
        settings.RATELIMIT_TIMEOUT = 0.05
        put("k")
        with locked("k"), pytest.raises(TimeOver) as raised:
            store.advance(advance())
        assert raised.value.is_busy
        assert counts() == {"k": 1}

    def test_server_time_is_that_of_the_world(self, store):
        assert store.has_clock
        assert abs(store.server_time() - time.time_ns() // 1_000) < 60_000_000

    @pytest.mark.django_db(transaction=True)
    def test_second_connection_commits_whatever_the_alias_says(self, store, monkeypatch):
        connections[ALIAS].ensure_connection()
        monkeypatch.setitem(connections[ALIAS].settings_dict, "AUTOCOMMIT", False)
        with transaction.atomic(using=ALIAS):
            store.advance(advance())
            transaction.set_rollback(True, using=ALIAS)
        assert counts() == {"k": 1}

    @pytest.mark.django_db(transaction=True)
    def test_limits_are_read_as_committed_and_not_as_the_callers_transaction_sees_them(self):
        baker.make(Limit, name="a", rate="3/min")
        with transaction.atomic():
            assert limiter.peek("a", "k").quota == 3
            assert Limit.objects.get().rate == "3/min"
            Limit.objects.update(rate="9/min")  # tells nobody, and is not committed
            snapshots.drop()
            assert limiter.peek("a", "k").quota == 3
        snapshots.drop()
        assert limiter.peek("a", "k").quota == 9
