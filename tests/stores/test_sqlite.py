import contextlib
import sqlite3

import pytest
from django.db import connections, transaction

from ratelimit_app.stores import Outcome
from tests.stores.contract import ALIAS, StoreContract, advance, counts, put
from tests.stores.log_contract import LogContract


class TestSQLite(LogContract, StoreContract):
    statements_when_refused = 2

    def never_wait(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 0")

    def explain(self, sql):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("ANALYZE")
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            return str(cursor.fetchall())

    @pytest.mark.django_db(transaction=True)
    def test_count_goes_back_with_the_callers_transaction_on_the_same_file(self, store):
        with transaction.atomic(using=ALIAS):
            store.advance_all([advance("k"), advance("l")])
            assert counts() == {"k": 1, "l": 1}
            transaction.set_rollback(True, using=ALIAS)
        assert counts() == {}

    @pytest.mark.django_db(transaction=True)
    def test_caller_that_has_written_can_still_count(self, store):
        with transaction.atomic(using=ALIAS):
            assert store.advance(advance()).fits
            assert store.advance_all([advance("k"), advance("l")]) == [Outcome(True, 2), Outcome(True, 1)]

    @pytest.mark.django_db(transaction=True)
    def test_statement_leaves_no_lock_behind(self, store):
        store.advance(advance())
        other = sqlite3.connect(connections[ALIAS].settings_dict["NAME"], timeout=0, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()

    @pytest.mark.django_db(transaction=True)
    def test_prune_leaves_nothing_for_live_calls_to_copy_from_the_wal(self, store):
        for key in "abc":
            put(key, expires_at=10)
        assert store.prune(10, 2) == 2
        file = f"file:{connections[ALIAS].settings_dict['NAME']}?immutable=1"  # as it is without the WAL
        with contextlib.closing(sqlite3.connect(file, uri=True)) as bare:
            assert bare.execute("SELECT count(*) FROM ratelimit_app_counter").fetchone() == (1,)

    @pytest.mark.django_db(transaction=True)
    def test_prune_in_the_callers_transaction_goes_with_it(self, store):
        put("k", expires_at=10)
        with transaction.atomic(using=ALIAS):
            assert store.prune(10, 2) == 1
            transaction.set_rollback(True, using=ALIAS)
        assert counts() == {"k": 1}

    def test_there_is_no_clock_but_the_local_one(self, store):
        assert not store.has_clock
