import logging

import pytest
from django.db import connection
from model_bakery import baker

from ratelimit_app import keys, limits
from ratelimit_app.models import Limit
from ratelimit_app.policy import Policy

FIELDS = {
    "rate": "10/min",
    "key": "user",
    "path": "^/api/",
    "methods": "POST, head",
    "mode": "shadow",
    "count_denied": True,
    "cost": 2,
}
BAD_SPECS = {
    "no rate": {},
    "bad rate": "garbage",
    "rate of another type": {"rate": 5},
    "number": 5,
    "list": ["5/m"],
    "unknown field": {"rate": "5/m", "quota": 5},
    "field that is no text": {"rate": "5/m", 5: 5},
    "name given twice": {"rate": "5/m", "name": "b"},
    "algorithm": {"rate": "5/m", "algorithm": "magic"},
    "burst": {"rate": "5/m", "burst": 3},
    "key": {"rate": "5/m", "key": "no.such.function"},
    "key of another type": {"rate": "5/m", "key": ["ip"]},
    "path": {"rate": "5/m", "path": "("},
    "path that Python finds too large": {"rate": "5/m", "path": "a{99999999999}"},
    "path of another type": {"rate": "5/m", "path": 5},
    "method": {"rate": "5/m", "methods": "FETCH"},
    "methods of another type": {"rate": "5/m", "methods": [5]},
    "mode": {"rate": "5/m", "mode": "on"},
    "cost": {"rate": "5/m", "cost": 0},
    "cost above the quota": {"rate": "5/m", "cost": 6},
    "cost of another type": {"rate": "5/m", "cost": "2"},
}


def live(spec):
    return limits.live(limits.declared("a", spec))


# Limits in code -----------------------------------------------------------------------------------


def test_rate_alone_declares_a_limit_with_defaults():
    limit = live("5/m")
    assert limit.policy == Policy("a", "fixed_window", 5, 60)
    assert (limit.name, limit.key, limit.path, limit.methods) == ("a", keys.ip, None, frozenset())
    assert (limit.mode, limit.count_denied, limit.cost, limit.is_shadow) == ("enforce", False, 1, False)


def test_fields_declare_all_of_a_limit():
    limit = live(FIELDS)
    assert limit.policy == Policy("a", "fixed_window", 10, 60)
    assert (limit.key, limit.path.pattern, limit.methods) == (keys.user, "^/api/", {"POST", "GET"})
    assert (limit.count_denied, limit.cost, limit.is_shadow) == (True, 2, True)


@pytest.mark.parametrize(
    "methods", [["POST", "PUT"], ("POST", "PUT"), {"POST", "PUT"}, "POST, PUT", "post put"]
)
def test_methods_may_be_a_text_or_a_list(methods):
    assert live({"rate": "5/m", "methods": methods}).methods == {"POST", "PUT"}


@pytest.mark.parametrize("spec", [None, {"rate": "5/m", "mode": "off"}])
def test_none_and_off_are_known_and_limit_nothing(spec, settings):
    settings.RATELIMIT_LIMITS = {"a": spec}
    snapshot = limits.load_declared()
    assert snapshot.by_name == {"a": None}
    assert list(snapshot.active) == []


@pytest.mark.parametrize("spec", BAD_SPECS.values(), ids=BAD_SPECS)
def test_bad_spec_is_reported_once_and_the_others_stay(spec, settings, caplog):
    settings.RATELIMIT_LIMITS = {"before": "5/m", "a": spec, "after": "5/m"}
    assert list(limits.load_declared().by_name) == ["before", "after"]
    limits.load_declared()
    assert [(record.levelname, "'a'" in record.message) for record in caplog.records] == [("ERROR", True)]


@pytest.mark.parametrize("spec", [BAD_SPECS["number"], BAD_SPECS["unknown field"], BAD_SPECS["list"]])
def test_declared_names_what_it_got(spec):
    with pytest.raises(ValueError, match=r"got (5|\['5/m'\])|unknown quota \(have: algorithm, burst"):
        limits.declared("a", spec)


# Rows ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_row_is_the_limit_that_its_fields_declare():
    row = live(FIELDS)
    limit = limits.live(baker.make(Limit, name="a", **FIELDS))
    for field in ("policy", "key", "path", "methods", "mode", "count_denied", "cost"):
        assert getattr(limit, field) == getattr(row, field)


@pytest.mark.django_db
def test_row_wins_by_name_over_the_one_in_code(settings):
    settings.RATELIMIT_LIMITS = {"a": "5/m", "b": "5/m"}
    baker.make(Limit, name="a", rate="9/m")
    baker.make(Limit, name="c", rate="7/m")
    found = limits.load(limits.read(connection))
    assert {name: limit.policy.quota for name, limit in found.by_name.items()} == {"a": 9, "b": 5, "c": 7}


@pytest.mark.django_db
def test_row_that_is_off_wins_too(settings):
    settings.RATELIMIT_LIMITS = {"a": "5/m"}
    baker.make(Limit, name="a", rate="9/m", mode="off")
    assert limits.load(limits.read(connection)).by_name == {"a": None}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "bad",
    [
        {"rate": "garbage"},
        {"algorithm": "magic"},
        {"path": "("},
        {"key": "no.such"},
        {"mode": "x"},
        {"cost": 0},
    ],
    ids=str,
)
def test_bad_row_is_ignored_and_the_one_in_code_stays(bad, settings, caplog):
    settings.RATELIMIT_LIMITS = {"a": "5/m"}
    baker.make(Limit, name="a", **{"rate": "9/m", **bad})
    baker.make(Limit, name="b", rate="7/m")
    assert {
        name: limit.policy.quota for name, limit in limits.load(limits.read(connection)).by_name.items()
    } == {
        "a": 5,
        "b": 7,
    }
    assert [(record.levelname, "'a'" in record.message) for record in caplog.records] == [("ERROR", True)]


@pytest.mark.django_db
def test_row_made_anew_and_code_have_counters_of_their_own(settings):
    settings.RATELIMIT_LIMITS = {"a": "5/m"}
    spaces = {limits.load(limits.read(connection)).by_name["a"].space}
    for _ in range(2):
        row = Limit.objects.create(name="a", rate="5/m")
        spaces.add(limits.load(limits.read(connection)).by_name["a"].space)
        row.delete()
    assert len(spaces) == 3


# Looking up ---------------------------------------------------------------------------------------


def test_find_reports_only_what_is_not_there(settings, caplog):
    settings.RATELIMIT_LIMITS = {"a": "5/m", "b": None}
    snapshot = limits.load_declared()
    assert snapshot.find("a").name == "a"
    assert snapshot.find("b") is None
    assert caplog.records == []
    assert snapshot.find("c") is None
    assert [(record.levelno, "'c'" in record.message) for record in caplog.records] == [
        (logging.WARNING, True)
    ]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "broken", [{"rate": "garbage"}, {"key": "no.such"}, {"path": "("}, {"algorithm": "magic"}]
)
def test_row_that_is_off_stays_off_whatever_else_is_wrong_with_it(broken, settings):
    settings.RATELIMIT_LIMITS = {"a": "5/min"}
    baker.make(Limit, name="a", rate="9/min", key="ip", mode="off")
    Limit.objects.update(**broken)
    assert limits.load(limits.read(connection)).by_name == {"a": None}
