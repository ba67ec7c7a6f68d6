import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections

from ratelimit_app.checks.databases import check_functions, check_tables
from tests.outages import outage, without_table

pytestmark = pytest.mark.django_db(transaction=True)


def found():
    messages = run_checks(databases=["ratelimit"])
    return [message for message in messages if message.id == "ratelimit_app.W012"]


@pytest.mark.parametrize("table", ["ratelimit_app_counter", "ratelimit_app_loggedcall"])
def test_table_that_no_migration_has_made_is_reported_with_the_command_that_does(table):
    with without_table("ratelimit", table):
        (message,) = found()
    assert f"has no {table} yet" in message.msg
    assert "manage.py migrate --database ratelimit" in message.hint


def test_tables_that_are_there_are_not_reported():
    assert found() == []


def test_missing_tables_do_not_keep_migrate_from_running(capsys):
    with without_table("ratelimit", "ratelimit_app_counter"):
        call_command("migrate", "ratelimit_app", "--plan", database="ratelimit", skip_checks=False)
    shown = capsys.readouterr()
    assert "No planned migration operations" in shown.out
    assert "ratelimit_app.W012" in shown.err


def test_tables_of_a_database_that_does_not_answer_are_not_missed():
    with outage("server"):
        assert check_tables(None, databases=list(connections)) == []


def test_functions_of_a_database_that_does_not_answer_are_not_missed():
    with outage("server"):
        assert check_functions(None, databases=list(connections)) == []


@pytest.mark.parametrize("databases", [None, [], ["default"]])
def test_database_is_not_asked_where_it_may_not_be(databases, django_assert_num_queries):
    with django_assert_num_queries(0, using="ratelimit"):
        assert check_tables(None, databases=databases) == []
        assert check_functions(None, databases=databases) == []
