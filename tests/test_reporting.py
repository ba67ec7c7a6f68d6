import logging

import pytest

from ratelimit_app import clock as app_clock
from ratelimit_app import reporting
from ratelimit_app.reporting import forget, report


@pytest.fixture
def at(monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(app_clock, "monotonic", lambda: seconds[0])
    return seconds


def test_report_is_written_once_per_interval(at, caplog):
    for second in (0.0, 1.0, 59.9, 60.0, 119.9, 120.0):
        at[0] = second
        report(logging.WARNING, "%s is odd", "it")
    assert caplog.messages == ["it is odd"] * 3


def test_report_of_another_thing_is_written(at, caplog):
    report(logging.WARNING, "%s is odd", "it")
    report(logging.ERROR, "%s is odd", "that")
    report(logging.ERROR, "odd")
    assert [(record.levelname, record.message, record.name) for record in caplog.records] == [
        ("WARNING", "it is odd", "ratelimit_app"),
        ("ERROR", "that is odd", "ratelimit_app"),
        ("ERROR", "odd", "ratelimit_app"),
    ]


def test_report_carries_the_traceback_if_asked(caplog):
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        report(logging.ERROR, "failed", exc_info=True)
        report(logging.ERROR, "odd")
    assert [bool(record.exc_info) for record in caplog.records] == [True, False]


def test_forget_reports_anew(at, caplog):
    report(logging.WARNING, "odd")
    forget()
    report(logging.WARNING, "odd")
    assert caplog.messages == ["odd", "odd"]


def test_causes_without_end_do_not_fill_the_memory(at):
    for number in range(5_000):
        report(logging.DEBUG, "%d is odd", number)
    assert len(reporting._reported) <= 1_001
