"""The checks of a SQLite file, on files made for the purpose, whatever the database under test."""

import sqlite3

import pytest
from django.core.checks import run_checks
from django.db import connections

from ratelimit_app.checks.sqlite import check_journal

IDS = {"ratelimit_app.W001", "ratelimit_app.W008", "ratelimit_app.W009", "ratelimit_app.I001"}
WAL = "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL"


@pytest.fixture
def make(settings, monkeypatch):
    """Make an alias of a SQLite database that the counters are in."""

    def make(name, init_command=""):
        database = {
            **connections.databases["default"],
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": name,
            "OPTIONS": {"init_command": init_command} if init_command else {},
        }
        monkeypatch.setitem(connections.databases, "odd", database)
        settings.RATELIMIT_DATABASE = "odd"

    yield make
    if "odd" in connections:
        connections["odd"].close()
        del connections["odd"]


def found(**how):
    return [message.id.partition(".")[2] for message in run_checks(**how) if message.id in IDS]


@pytest.mark.parametrize("alias", ["default", "ratelimit"])
def test_counters_in_the_projects_own_sqlite_file_are_warned_of_and_of_nothing_else(
    alias, settings, monkeypatch
):
    monkeypatch.setitem(connections["default"].settings_dict, "OPTIONS", {})
    settings.RATELIMIT_DATABASE = alias
    shared = alias == "default" and connections["default"].vendor == "sqlite"
    assert found() == ["W001"] * shared


def test_counters_on_an_alias_of_the_projects_own_sqlite_file_are_warned_of(monkeypatch):
    own = connections["default"].settings_dict
    for name in ("ENGINE", "HOST", "PORT", "NAME"):
        monkeypatch.setitem(connections["ratelimit"].settings_dict, name, own[name])
    shared = connections["default"].vendor == "sqlite"
    assert found() == ["W001"] * shared


@pytest.mark.parametrize(
    ("init_command", "reported"),
    [("", ["I001"]), ("PRAGMA synchronous=NORMAL", ["I001"]), (WAL, []), (WAL.lower(), [])],
)
def test_file_that_is_not_asked_for_a_write_ahead_log_is_told_of(init_command, reported, make, tmp_path):
    make(tmp_path / "counters.sqlite3", init_command)
    assert found() == reported
    assert not (tmp_path / "counters.sqlite3").exists()


@pytest.mark.parametrize(("journal", "reported"), [("wal", []), ("delete", ["W008"]), ("truncate", ["W008"])])
def test_file_that_may_be_looked_into_tells_its_journal_whatever_the_options(
    journal, reported, make, tmp_path, django_db_blocker
):
    file = tmp_path / "counters.sqlite3"
    with sqlite3.connect(file) as own:
        own.execute(f"PRAGMA journal_mode={journal}")
        own.execute("CREATE TABLE something (id)")
    own.close()
    make(file)
    with django_db_blocker.unblock():
        messages = check_journal(None, databases=["odd"])
    assert [message.id.partition(".")[2] for message in messages] == reported


def test_file_that_cannot_be_opened_is_for_others_to_report(make, tmp_path, django_db_blocker):
    make(tmp_path / "no" / "such" / "directory")
    with django_db_blocker.unblock():
        assert check_journal(None, databases=["odd"]) == []


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        (":memory:", ["W009"]),
        ("file::memory:?cache=shared", ["W009"]),
        ("file:counters?mode=memory&cache=shared", ["W009"]),
        ("file:memorydb_odd?mode=memory&cache=shared", []),
    ],
)
def test_counters_in_memory_are_warned_of_but_in_tests(name, reported, make):
    make(name)
    assert found() == reported


def test_unknown_alias_is_left_to_its_own_check(settings):
    settings.RATELIMIT_DATABASE = "nosuch"
    assert found() == []
