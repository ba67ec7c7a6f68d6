import pytest
from django.core.checks import run_checks
from django.db import connections

from ratelimit_app.checks.timeouts import WANTED

#: By vendor: options, and what of them is missed.
TABLE = {
    "postgresql": [
        ({}, ["connect_timeout", "lock_timeout or statement_timeout"]),
        ({"connect_timeout": 2}, ["lock_timeout or statement_timeout"]),
        ({"connect_timeout": 2, "options": "-c deadlock_timeout=1s"}, ["lock_timeout or statement_timeout"]),
        ({"options": "-c lock_timeout=1s"}, ["connect_timeout"]),
        ({"connect_timeout": 2, "options": "-c lock_timeout=1s"}, []),
        ({"connect_timeout": 2, "options": "-c statement_timeout=1s"}, []),
        ({"service": "counters"}, []),
    ],
    "mysql": [
        ({}, ["connect_timeout", "read_timeout"]),
        ({"connect_timeout": 2}, ["read_timeout"]),
        ({"read_timeout": 2}, ["connect_timeout"]),
        ({"connect_timeout": 2, "read_timeout": 2}, []),
        ({"read_default_file": "/etc/my.cnf"}, []),
    ],
    "sqlite": [({}, [])],
}
ROWS = [(vendor, options, missed) for vendor, rows in TABLE.items() for options, missed in rows]


def found(**how):
    return [message for message in run_checks(**how) if message.id == "ratelimit_app.W006"]


@pytest.mark.parametrize(("vendor", "options", "missed"), ROWS, ids=str)
def test_timeouts_that_a_connection_has_not_are_reported_before_deployment(
    vendor, options, missed, monkeypatch
):
    monkeypatch.setattr(connections["ratelimit"], "vendor", vendor)
    monkeypatch.setitem(connections["ratelimit"].settings_dict, "OPTIONS", options)
    messages = found(include_deployment_checks=True)
    assert [
        name for name in ("connect_timeout", *WANTED_NAMES) if any(name in m.msg for m in messages)
    ] == missed
    assert found() == []


WANTED_NAMES = ["lock_timeout or statement_timeout", "read_timeout"]


@pytest.mark.parametrize("vendor", WANTED)
def test_hint_has_what_the_check_asks_for(vendor, monkeypatch):
    monkeypatch.setattr(connections["ratelimit"], "vendor", vendor)
    monkeypatch.setitem(connections["ratelimit"].settings_dict, "OPTIONS", {})
    (message,) = found(include_deployment_checks=True)
    shown = message.hint.partition("OPTIONS = ")[2].partition("}")[0] + "}"
    monkeypatch.setitem(connections["ratelimit"].settings_dict, "OPTIONS", eval(shown))
    assert found(include_deployment_checks=True) == []


def test_unknown_alias_is_left_to_its_own_check(settings):
    settings.RATELIMIT_DATABASE = "nosuch"
    assert found(include_deployment_checks=True) == []
