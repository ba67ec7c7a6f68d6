import pytest
from django.core.checks import run_checks
from django.db import connections

from ratelimit_app.checks.databases import check_functions
from tests.outages import outage


def found():
    return [message.id for message in run_checks() if message.id.startswith("ratelimit_app.")]


@pytest.mark.parametrize("alias", ["default", "ratelimit"])
def test_counters_in_the_projects_own_sqlite_file_are_warned_of(alias, settings):
    settings.RATELIMIT_DATABASE = alias
    shared = alias == "default" and connections["default"].vendor == "sqlite"
    assert found() == ["ratelimit_app.W001"] * shared


def test_counters_on_an_alias_of_the_projects_own_sqlite_file_are_warned_of(monkeypatch):
    own = connections["default"].settings_dict
    for name in ("ENGINE", "HOST", "PORT", "NAME"):
        monkeypatch.setitem(connections["ratelimit"].settings_dict, name, own[name])
    shared = connections["default"].vendor == "sqlite"
    assert found() == ["ratelimit_app.W001"] * shared


@pytest.mark.django_db(transaction=True)
def test_functions_of_a_database_that_does_not_answer_are_not_missed():
    with outage("server"):
        assert check_functions(None, databases=list(connections)) == []
