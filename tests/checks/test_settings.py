import math

import pytest
from django.core.checks import run_checks
from django.db import connections

from ratelimit_app.checks.settings import SETTINGS

#: By setting: its id, values that will do, values that will not.
TABLE = {
    "DATABASE": ("E001", ["default", "ratelimit"], ["nosuch", "", None]),
    "TIME_ZONE": (
        "E002",
        ["UTC", "Europe/Paris", "America/New_York"],
        ["Mars/Olympus", "", 5, None, "../etc/passwd", "Europe", "\x00"],
    ),
    "REFRESH": ("E003", [0, 2, 0.5, 3600], [-1, True, "2", None, math.nan, math.inf]),
    "LIMITS": (
        "E004",
        [{}, {"a": "5/m"}, {"a": None}, {"a": {"rate": "5/m", "key": "user", "methods": ["POST"]}}],
        [
            {"a": "garbage"},
            {"a": 5},
            {"a": {}},
            {"a": {"rate": "5/m", "quota": 5}},
            {"a": {"rate": "5/m", "key": "no.such.function"}},
            {"a": {"rate": "5/m", "path": "("}},
            {"a": {"rate": "5/m", "methods": "FETCH"}},
            {"a": {"rate": "5/m", "mode": "on"}},
            {"a": {"rate": "5/m", "cost": 6}},
            {"a": {"rate": "5/m", "burst": 6}},
            {"a": {"rate": "5/m", "algorithm": "magic"}},
            {"a": {"rate": "5/m", "count_denied": "perhaps"}},
            {5: "5/m"},
            {"": "5/m"},
            {"a" * 65: "5/m"},
            ["5/m"],
            None,
        ],
    ),
    "ON_ERROR": ("E014", ["allow", "deny", "local"], ["", "Allow", None, 1]),
    "REFUSAL": (
        "E013",
        ["", "project.views.ping"],
        ["nosuch", "no.such.function", "project.settings.DEBUG", 5, None],
    ),
    "HEADERS": ("E005", [["ietf"], ("ietf", "x_ratelimit"), []], ["ietf", ["nosuch"], [5], None]),
    "CLOCK": ("E006", ["database", "local"], ["server", "", None]),
    "IPV6_PREFIX": ("E007", [1, 64, 128], [0, 129, -1, True, 64.0, "64", None]),
    "TIMEOUT": ("E008", [0.01, 0.5, 10], [0, -0.1, True, "1", None, math.nan, math.inf]),
    "PRUNE_PROBABILITY": (
        "E015",
        [0, 0.0, 0.001, 1, 1.0],
        [-0.1, 1.1, True, False, "0.5", None, math.nan, math.inf],
    ),
    "EXEMPT": ("E009", [[], ["admin:"], ("healthz",)], ["admin:", [5], None]),
    "ENABLE": ("E010", [True, False], ["False", 0, None]),
    "TRUSTED_PROXIES": (
        "E011",
        [0, 2, [], ["10.0.0.0/8", "2001:db8::7"], ("192.0.2.1",)],
        ["10.0.0.0/8", -1, True, 1.0, None, ["10.0.0.1/8"], ["proxy"], [10], ["::ffff:10.0.0.0/104"]],
    ),
    "PROXY_HEADER": (
        "E012",
        ["X-Forwarded-For", "forwarded", "CF-Connecting-IP"],
        ["", "HTTP_X_FORWARDED_FOR", "X-Real-IP:", 5, None],
    ),
}
RIGHT = [(name, value) for name, (_, right, _) in TABLE.items() for value in right]
WRONG = [(name, number, value) for name, (number, _, wrong) in TABLE.items() for value in wrong]


def errors():
    return [message for message in run_checks() if message.id.startswith("ratelimit_app.E")]


@pytest.mark.parametrize(("name", "value"), RIGHT, ids=str)
def test_setting_that_will_do_is_not_reported(name, value, settings):
    setattr(settings, f"RATELIMIT_{name}", value)
    assert errors() == []


@pytest.mark.parametrize(("name", "number", "value"), WRONG, ids=str)
def test_setting_that_will_not_do_is_reported_by_its_name(name, number, value, settings):
    setattr(settings, f"RATELIMIT_{name}", value)
    (error,) = errors()
    assert error.id == f"ratelimit_app.{number}"
    assert error.msg.startswith(f"RATELIMIT_{name}: ")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DATABASE", "nosuch", "unknown alias 'nosuch' (have: default, ratelimit)"),
        ("HEADERS", ["foo"], "unknown format 'foo' (have: ietf, x_ratelimit)"),
        ("CLOCK", "server", "unknown clock 'server' (have: database, local)"),
        ("IPV6_PREFIX", 0, "a whole number of bits from 1 to 128, got 0"),
        ("REFRESH", -1, "a number of seconds from 0, got -1"),
        ("PRUNE_PROBABILITY", 50, "a number from 0 (never) to 1 (with each call), got 50"),
        ("LIMITS", {"a": "garbage"}, "'a': "),
    ],
)
def test_report_names_the_value_and_those_allowed(name, value, words, settings):
    setattr(settings, f"RATELIMIT_{name}", value)
    assert errors()[0].msg.startswith(f"RATELIMIT_{name}: {words}")


def test_all_wrong_settings_are_reported_at_once(settings):
    for name, (_, _, wrong) in TABLE.items():
        setattr(settings, f"RATELIMIT_{name}", wrong[0])
    assert sorted(error.id.partition(".")[2] for error in errors()) == sorted(
        row[0] for row in TABLE.values()
    )


def test_every_check_is_tested_here():
    assert {name: number for number, name, _ in SETTINGS} == {name: row[0] for name, row in TABLE.items()}


def test_database_of_a_vendor_without_a_store_is_reported(settings, monkeypatch):
    monkeypatch.setitem(connections.databases, "odd", connections.databases["default"])
    monkeypatch.setattr(connections["odd"], "vendor", "odd", raising=False)
    settings.RATELIMIT_DATABASE = "odd"
    assert [error.id for error in errors()] == ["ratelimit_app.E001"]
    assert "no store for the vendor 'odd'" in errors()[0].msg
    del connections["odd"]
