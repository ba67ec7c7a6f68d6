import dataclasses

import pytest
from django.core.management import call_command
from django.db import connections
from django.test.utils import CaptureQueriesContext

from ratelimit_app.checks.databases import check_functions
from ratelimit_app.stores import Outcome, postgresql, postgresql_functions, store_for
from ratelimit_app.stores.rows import MAX_COUNT
from tests.stores.contract import ALIAS, advance, locked, put, release_at
from tests.stores.log_contract import LogContract, log
from tests.stores.server_contract import ServerStoreContract


class TestPostgreSQL(LogContract, ServerStoreContract):
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

    def waits(self, cursor, session):
        cursor.execute("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", [session])
        return cursor.fetchone()[0]

    def outlive(self, cursor):
        cursor.execute("SET LOCAL deadlock_timeout = '1min'")  # the other one looks first, and gives up

    @pytest.mark.django_db(transaction=True)
    def test_statement_that_a_timeout_has_ended_at_a_lock_is_sent_again(self, store, settings):
        settings.RATELIMIT_TIMEOUT = 60
        put("k", count=3)
        with store.connection().cursor() as cursor:
            cursor.execute("SET statement_timeout = '20ms'")
        with locked("k") as release:
            store.is_contention = release_at(store.is_contention, release)
            assert store.advance(advance()) == Outcome(True, 4)
        store.connection().close()

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

    @pytest.mark.django_db(transaction=True)
    def test_connection_that_is_told_something_unasked_is_kept(self, store):
        connection = store.connection()
        run(["LISTEN news"])
        session = self.session(connection)
        with connections["default"].cursor() as cursor:
            cursor.execute("NOTIFY news")
        assert store.advance(advance()) == Outcome(True, 1)
        assert self.session(connection) == session
        connection.close()

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


class TestWithoutFunctions(TestPostgreSQL):
    """The same by transactions, where the role may not create functions."""

    @pytest.fixture(autouse=True)
    def _without_functions(self, store, monkeypatch):
        monkeypatch.setitem(postgresql._with_functions, store._database, False)


@pytest.fixture
def store():
    return store_for(ALIAS)


def run(statements):
    with connections[ALIAS].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.django_db
class TestFunctions:
    @pytest.mark.parametrize("number", [2, 3, 10])
    @pytest.mark.parametrize("room", [4, 10], ids=["refused", "taken"])
    @pytest.mark.parametrize("count_denied", [False, True])
    def test_any_number_of_counters_is_one_statement(self, store, number, room, count_denied):
        steps = [log(0, f"k{i}") if i % 2 else advance(f"k{i}") for i in range(number)]
        store.advance_all(steps)
        steps[-1] = dataclasses.replace(steps[-1], amount=4, ceiling=room, count_denied=count_denied)
        with CaptureQueriesContext(store.connection()) as asked:
            outcomes = store.advance_all(steps)
        assert all(outcome.fits for outcome in outcomes) == (room == 10)
        assert len(asked) == 1

    def test_logged_call_is_one_statement(self, store):
        store.advance(log(ceiling=2))
        for fits in (True, False):
            with CaptureQueriesContext(store.connection()) as asked:
                assert store.advance(log(ceiling=2)).fits == fits
            assert len(asked) == 1

    def test_check_says_where_they_are_missing(self, store):
        assert check_functions(None, databases=["default", ALIAS]) == []
        run(store.drop_statements)
        (warning,) = check_functions(None, databases=["default", ALIAS])
        assert warning.id == "ratelimit_app.W003"
        assert "has not the function ratelimit_app_advance(jsonb)" in warning.msg
        assert check_functions(None, databases=["default"]) == []

    def test_sql_of_the_migration_is_what_creates_them(self, capsys):
        call_command("sqlmigrate", "ratelimit_app", "0003", database=ALIAS)
        assert capsys.readouterr().out.count("CREATE FUNCTION") == 3

    def test_highest_count_is_that_of_the_store(self):
        assert f"{MAX_COUNT};" in "".join(postgresql_functions.CREATE)

    @pytest.mark.parametrize(
        "statement",
        [
            "DROP FUNCTION ratelimit_app_advance",
            "REVOKE EXECUTE ON FUNCTION ratelimit_app_advance FROM PUBLIC",
        ],
    )
    @pytest.mark.django_db(transaction=True)
    def test_store_that_has_lost_them_goes_on_without(self, store, monkeypatch, statement):
        monkeypatch.setattr(postgresql, "_with_functions", {})
        run(["CREATE ROLE caller", "GRANT ALL ON ALL TABLES IN SCHEMA public TO caller"])
        try:
            run(["SET ROLE caller"])
            assert store.advance_all([advance("a"), log(key="b")])[0].fits
            run(["RESET ROLE", statement, "SET ROLE caller"])
            assert store.advance_all([advance("a"), log(key="b")])[1] == Outcome(
                True, 2, empty_at=100, more_at=100
            )
            assert not postgresql._with_functions[store._database]
            assert store.missing() == "the function ratelimit_app_advance(jsonb)"
        finally:
            run(["RESET ROLE", "DROP OWNED BY caller", "DROP ROLE caller"])
            run([*store.drop_statements, *store.create_statements])
        assert store.missing() == ""

    @pytest.mark.django_db(transaction=True)
    def test_migration_goes_on_where_the_role_may_not_create_them(self, store):
        def migrate(*names):
            call_command("migrate", "ratelimit_app", *names, database=ALIAS, verbosity=0)

        run(["CREATE ROLE caller", "GRANT ALL ON ALL TABLES IN SCHEMA public TO caller"])
        try:
            migrate("0002")
            assert store.missing()
            run(["REVOKE CREATE ON SCHEMA public FROM PUBLIC", "SET ROLE caller"])
            migrate("0003")
            run(["RESET ROLE"])
            assert store.missing()
            migrate("0002")
        finally:
            run(["RESET ROLE", "DROP OWNED BY caller", "DROP ROLE caller"])
            migrate()
        assert store.missing() == ""
