import logging

import pytest
from django.contrib.sessions.backends.base import SessionBase
from django.test import RequestFactory

from ratelimit_app import clock as app_clock
from ratelimit_app import enforcement, keys, limiter, reporting
from ratelimit_app.reporting import MOST, forget, report


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


def test_what_was_seen_is_shown_and_no_cause_of_its_own(at, caplog):
    for text in ("this", "that"):
        report(logging.WARNING, "%s is odd: %r", "it", seen=[text])
    report(logging.WARNING, "%s is odd: %r", "another", seen=["that"])
    assert caplog.messages == ["it is odd: 'this'", "another is odd: 'that'"]


def test_causes_without_end_fill_neither_the_memory_nor_the_log(at, caplog):
    for number in range(5_000):
        report(logging.WARNING, "%s is odd", str(number) + "x" * 100_000)
    report(logging.WARNING, "that is odd too")
    kept = reporting._reported["%s is odd"]
    assert len(kept) == MOST
    assert sum(len(text) for cause in kept for text in cause) < 100_000
    assert len(caplog.records) == MOST + 1


def test_causes_without_end_keep_no_later_one_from_being_reported(at, caplog):
    for number in range(MOST):
        at[0] = number * 0.1
        report(logging.WARNING, "%s is odd", number)
    at[0] = 60.0
    caplog.clear()
    for number in ("this", "that"):
        report(logging.WARNING, "%s is odd", number)
    assert caplog.messages == ["this is odd"]


# What visitors choose -----------------------------------------------------------------------------


def ask_from(remote):
    keys.ip(RequestFactory().get("/", REMOTE_ADDR=remote))


def ask_behind_a_proxy(entry):
    keys.ip(RequestFactory().get("/", headers={"X-Forwarded-For": entry}))


def ask_at_a_cost_of(text):
    enforcement.enforce(RequestFactory().get("/", {"cost": text}), ["case"], lambda sent: sent.GET["cost"])


def ask_with_a_made_up_session(text):
    request = RequestFactory().get("/")
    request.session = NeverThere(text)
    keys.load("session")(request)


class NeverThere(SessionBase):
    def load(self):
        raise OSError(f"there is no {self.session_key}")


@pytest.mark.django_db
@pytest.mark.parametrize("ask", [ask_from, ask_behind_a_proxy, ask_at_a_cost_of, ask_with_a_made_up_session])
def test_what_a_visitor_chooses_makes_no_further_reports(ask, at, caplog, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = int(ask is ask_behind_a_proxy)
    settings.RATELIMIT_LIMITS = {"case": "1000/min"}
    for number in range(20):
        ask(f"made up {number}")
    assert len(caplog.records) == 1


@pytest.mark.django_db
def test_names_of_limits_without_end_are_reported_in_part(at, caplog, settings):
    settings.RATELIMIT_LIMITS = {}
    for number in range(MOST + 20):
        limiter.consume(str(number) + "x" * 1_000, "k")
    assert len(caplog.records) == MOST
    assert max(map(len, caplog.messages)) < 200
