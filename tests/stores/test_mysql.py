import pytest
from django.db import OperationalError, connections

from ratelimit_app.stores import Outcome
from tests.stores.contract import ALIAS, advance, locked, put
from tests.stores.log_contract import LogContract
from tests.stores.server_contract import ServerStoreContract


class TestMariaDB(LogContract, ServerStoreContract):
    end_session = "KILL %s"

    def never_wait(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 0")

    def hardly_wait(self, connection):
        # At 0, a statement that skips what is locked fails (error 1180, MariaDB 10.11).
        with connection.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1")

    def explain(self, sql):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("ANALYZE TABLE ratelimit_app_counter, ratelimit_app_loggedcall")
            cursor.fetchall()
            cursor.execute(f"EXPLAIN {sql}")
            columns = [column[0] for column in cursor.description]
            return " ".join(str(dict(zip(columns, row, strict=True))["key"]) for row in cursor.fetchall())

    def session(self, connection):
        return connection.connection.thread_id()

    def sessions(self, cursor):
        cursor.execute("SHOW PROCESSLIST")
        return {number for number, *_ in cursor.fetchall()}

    def waits(self, cursor, session):
        cursor.execute("DO SLEEP(0.15)")  # the table tells no news to who has read it 0.1 s ago
        cursor.execute(
            "SELECT count(*) FROM information_schema.innodb_trx "
            "WHERE trx_mysql_thread_id = %s AND trx_state = 'LOCK WAIT'",
            [session],
        )
        return cursor.fetchone()[0] == 1

    def outlive(self, cursor):
        # What has changed less is ended.
        rows = [(f"w{number}", 0, 1, 100) for number in range(20)]
        cursor.executemany("INSERT INTO ratelimit_app_counter VALUES (%s, %s, %s, %s)", rows)

    @pytest.mark.django_db(transaction=True)
    def test_statement_that_a_time_limit_has_ended_at_a_lock_met_contention(self, store):
        put("k")
        with store.connection().cursor() as cursor:
            cursor.execute("SET max_statement_time = 0.05")
        with locked("k"), pytest.raises(OperationalError) as raised:
            store.send_advance(store.connection(), advance())
        assert store.is_contention(raised.value)
        store.connection().close()

    def test_key_is_one_byte_a_character_and_compared_byte_by_byte(self):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(
                "SELECT character_set_name, collation_name FROM information_schema.columns "
                "WHERE table_schema = database() "
                "AND table_name = 'ratelimit_app_counter' AND column_name = 'key'"
            )
            assert cursor.fetchall() == (("ascii", "ascii_bin"),)

    @pytest.mark.parametrize("count", [0, 1, 2**31, 2**62 - 1, 2**62])
    def test_any_count_that_is_met_comes_back_with_the_refusal(self, store, count):
        put(count=count)
        assert store.advance(advance(floor=-1, ceiling=0)) == Outcome(False, count)

    @pytest.mark.parametrize("offset", ["+00:00", "+05:30", "-03:30"])
    def test_server_time_does_not_depend_on_the_zone_of_the_session(self, store, offset):
        before = store.server_time()
        with store.connection().cursor() as cursor:
            cursor.execute("SET @zone = @@time_zone, time_zone = %s", [offset])
            after = store.server_time()
            cursor.execute("SET time_zone = @zone")
        assert 0 <= after - before < 60_000_000
