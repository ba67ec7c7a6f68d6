import pytest
from django.db import connections

from tests.stores.contract import ALIAS, advance
from tests.stores.server_contract import ServerStoreContract


class TestPostgreSQL(ServerStoreContract):
    end_session = "SELECT pg_terminate_backend(%s)"

    def never_wait(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '1ms'")

    def explain(self, sql):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("ANALYZE ratelimit_app_counter, ratelimit_app_loggedcall")
            cursor.execute(f"EXPLAIN {sql}")
            return "\n".join(line for (line,) in cursor.fetchall())

    def session(self, connection):
        return connection.connection.info.backend_pid

    def sessions(self, cursor):
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return {pid for (pid,) in cursor.fetchall()}

    @pytest.mark.django_db(transaction=True)
    def test_updates_of_a_counter_stay_within_its_page(self, store):
        table = "'ratelimit_app_counter'::regclass"
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(f"SELECT pg_stat_reset_single_table_counters({table})")
            cursor.execute("SET synchronous_commit = off")  # a thousand commits, soon over
            for number in range(1_000):
                store.advance(advance(ceiling=1_000, expires_at=100 + number // 500))
            cursor.execute("SELECT pg_stat_force_next_flush()")
            cursor.execute(
                f"SELECT pg_stat_get_tuples_updated({table}), pg_stat_get_tuples_hot_updated({table})"
            )
            updated, within_page = cursor.fetchone()
        assert updated == 999
        assert within_page > 900

    def test_key_is_compared_byte_by_byte(self):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(
                "SELECT collation_name FROM information_schema.columns "
                "WHERE table_name = 'ratelimit_app_counter' AND column_name = 'key'"
            )
            assert cursor.fetchall() == [("C",)]

    @pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
    def test_server_time_does_not_depend_on_the_zone_of_the_session(self, store, zone):
        before = store.server_time()
        with store.connection().cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', %s, true)", [zone])
        assert 0 <= store.server_time() - before < 60_000_000
