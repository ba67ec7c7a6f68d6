"""What is asked of a database that does not answer, and when."""

import logging

import pytest
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, ProgrammingError

from ratelimit_app import clock, outages, signals, statistics
from ratelimit_app.outages import Unanswered, ask
from ratelimit_app.stores import Row, TimeOver

ALIAS = "ratelimit"
ROWS = [Row("k", 0), Row("l", 0)]
TOLD = "The counters' database 'ratelimit' does not answer: calls go by their limits' on_error"
AT_ONCE = [DataError("?"), IntegrityError("?"), ProgrammingError("no table")]
AWAY = [OperationalError("gone"), InterfaceError("closed"), TimeOver("no answer", is_busy=False)]


@pytest.fixture
def at(monkeypatch):
    seconds = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: seconds[0])
    return seconds


class Database:
    """What answers the questions of these tests, until it is told to fail."""

    def __init__(self):
        self.asked = 0
        self.error = None

    def __call__(self, store):
        self.asked += 1
        if self.error:
            raise self.error
        return "answer"


@pytest.fixture
def database(at):
    return Database()


def busy():
    return TimeOver("locked", is_busy=True)


def outcome(database, rows=ROWS):
    """Return the answer; or, of a database that gives none, whether that is because it is busy."""
    try:
        return ask(ALIAS, database, rows)
    except Unanswered as trouble:
        return trouble.is_busy


def test_answer_is_passed_on(database):
    assert [outcome(database) for _ in range(3)] == ["answer"] * 3
    assert database.asked == 3


@pytest.mark.parametrize("error", AWAY, ids=repr)
def test_database_that_is_away_is_asked_once_a_second_until_it_answers(database, at, error):
    database.error = error
    assert [outcome(database) for _ in range(5)] == [False] * 5
    assert database.asked == 1
    at[0] += 0.999
    assert (outcome(database, []), database.asked) == (False, 1)
    at[0] += 0.001
    assert [outcome(database) for _ in range(5)] == [False] * 5
    assert database.asked == 2
    database.error = None
    at[0] += 1
    assert [outcome(database) for _ in range(5)] == ["answer"] * 5


def test_another_alias_of_the_same_database_is_left_alone_too(database, monkeypatch):
    monkeypatch.setattr(outages, "database_of", lambda alias: "the same")
    database.error = AWAY[0]
    outcome(database)
    with pytest.raises(Unanswered):
        ask("default", database)
    assert database.asked == 1


def test_other_callers_go_without_while_one_asks(database, at):
    database.error = AWAY[0]
    outcome(database)
    at[0] += 1
    met = []

    def slow(store):
        met.append(outcome(database))
        return "answer"

    assert ask(ALIAS, slow, ROWS) == "answer"
    assert met == [False]
    assert database.asked == 1


@pytest.mark.parametrize("error", AT_ONCE, ids=repr)
def test_error_that_comes_at_once_is_met_by_each_caller(database, error):
    database.error = error
    assert [outcome(database) for _ in range(3)] == [False] * 3
    assert database.asked == 3


def test_another_error_is_not_caught(database):
    database.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        outcome(database)


def test_rows_that_are_locked_are_left_alone_and_no_others(database, at):
    database.error = busy()
    assert [outcome(database) for _ in range(3)] == [True] * 3
    assert database.asked == 1
    database.error = None
    assert outcome(database, ROWS[:1]) == "answer"
    assert outcome(database, list(reversed(ROWS))) is True
    at[0] += 1
    assert outcome(database) == "answer"
    assert outcome(database) == "answer"


def test_lock_of_something_else_than_counters_keeps_nobody_from_those(database):
    database.error = busy()
    assert [outcome(database, []) for _ in range(5)] == [True] * 5
    database.error = None
    assert outcome(database) == "answer"


def test_locks_in_a_row_leave_all_rows_alone(database, at):
    database.error = busy()
    assert [outcome(database, [Row(key, 0)]) for key in "abcd"] == [True] * 4
    assert database.asked == 3
    at[0] += 1
    database.error = None
    assert outcome(database, [Row("z", 0)]) == "answer"
    assert outcome(database, [Row("d", 0)]) == "answer"


def test_locks_that_are_met_while_others_are_answered_leave_those_alone(database, at):
    """Callers who are only in each other's way give up together."""

    def wait_in_vain(store):
        at[0] += 0.25
        assert ask(ALIAS, Database(), [Row("lucky", 0)]) == "answer"
        at[0] += 0.25
        raise busy()

    for key in "abcde":
        with pytest.raises(Unanswered):
            ask(ALIAS, wait_in_vain, [Row(key, 0)])
    assert outcome(database, [Row("z", 0)]) == "answer"


def test_locks_that_do_not_come_in_a_row_leave_the_others_alone(database, at):
    for key in "abcde":
        at[0] += 0.5
        database.error = busy()
        assert outcome(database, [Row(key, 0)]) is True
        at[0] += 0.5
        database.error = None
        assert outcome(database, [Row("free", 0)]) == "answer"


def test_rows_that_nobody_asks_for_again_are_forgotten(database, at):
    for number in range(2_000):
        database.error = busy()
        outcome(database, [Row(str(number), 0)])
        database.error = None
        outcome(database, [Row("free", 0)])
        at[0] += 0.01
    assert len(outages._left_alone) < 300


def test_outage_is_told_once_a_minute_by_log_and_signal(database, at, caplog):
    told = []

    def listen(sender, error, is_busy, **kwargs):
        told.append((sender, error, is_busy))

    signals.outage.connect(listen)
    try:
        database.error = AWAY[0]
        for _ in range(119):
            outcome(database)
            at[0] += 1
    finally:
        signals.outage.disconnect(listen)
    assert told == [(ALIAS, AWAY[0], False)] * 2
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (
            logging.ERROR,
            "The counters' database 'ratelimit' does not answer: calls go by their limits' on_error",
        )
    ] * 2


def test_statistics_count_what_was_asked_in_vain(database):
    before = statistics.read()
    database.error = AWAY[0]
    for _ in range(5):
        outcome(database)
    outages.forget()
    database.error = busy()
    outcome(database)
    after = statistics.read()
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "unanswered": 1,
        "passed_by": 4,
        "busy": 1,
    }
