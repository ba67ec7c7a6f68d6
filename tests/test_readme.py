"""The README is true: its examples run, its answer is the answer, its settings are the settings."""

import doctest
import io
import json
import re
from pathlib import Path

import pytest
from django.contrib.auth.views import LoginView
from django.core.management import call_command, get_commands
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string
from django.views import View
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from ratelimit_app import algorithms, enforcement, responses
from ratelimit_app.conf import Configuration
from ratelimit_app.limits import declared
from ratelimit_app.throttling import named_limits
from tests.field_reports.test_http import EXPOSED

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.django_db
def test_python_sessions_print_what_they_say():
    sessions = "\n".join(block for block in blocks("python") if ">>>" in block)
    test = doctest.DocTestParser().get_doctest(sessions, {}, "README", "README.md", 0)
    report = []
    assert test.examples
    assert doctest.DocTestRunner().run(test, out=report.append).failed == 0, "".join(report)


def test_settings_and_views_are_usable():
    names = {
        "APIView": APIView,
        "View": View,
        "ViewSet": ViewSet,
        "LoginView": LoginView,
        "method_decorator": method_decorator,
        "DATABASES": {},
        "BASE_DIR": Path("somewhere"),
    }
    for block in blocks("python"):
        if ">>>" not in block:
            exec(block, names)
    for path in [*names["MIDDLEWARE"][:2], *names["DATABASE_ROUTERS"]]:
        import_string(path)
    for name, spec in names["RATELIMIT_LIMITS"].items():
        declared(name, spec).full_clean(validate_unique=False)
    for view in (names["Reports"], names["Things"]):
        assert set(named_limits(view)) <= set(names["RATELIMIT_LIMITS"])
    assert names["search"].ratelimit_names == ("everyone",)
    assert names["CORS_EXPOSE_HEADERS"] == EXPOSED


@pytest.mark.django_db
def test_refusal_is_the_one_shown(clock):
    clock.advance(45)
    request = RequestFactory().post("/login/")
    while (decision := enforcement.enforce(request, ["login"])) and decision.allowed:
        request = RequestFactory().post("/login/")
    response = responses.refusal(decision, request)
    head, _, body = blocks("http")[0].partition("\n\n")
    assert json.loads(response.content) == json.loads(body)
    shown = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    assert {name: response[name] for name in shown} == shown


def test_simulations_print_what_is_shown():
    shown = blocks("console")[0].split("$ manage.py ")[1:]
    assert len(shown) == 2
    for example in shown:
        command, _, output = example.partition("\n")
        shown_ways = {line.split()[0] for line in output.splitlines()} & {*algorithms.names()}
        out = io.StringIO()
        call_command(*command.split(), algorithm=sorted(shown_ways), stdout=out)
        assert out.getvalue() == output


def test_every_setting_is_listed():
    listed = set(re.findall(r"^\| `RATELIMIT_([A-Z0-9_]+)`", README, re.MULTILINE))
    assert listed == {
        name.upper() for name, value in vars(Configuration).items() if isinstance(value, property)
    }


def test_every_check_is_listed():
    source = "".join(path.read_text() for path in Path("ratelimit_app/checks").glob("*.py"))
    listed = re.findall(r"`([WI][0-9]{3})`", "".join(re.findall(r"^\| `[WI].*", README, re.MULTILINE)))
    assert sorted(listed) == sorted(set(re.findall(r"ratelimit_app\.([WI][0-9]{3})", source)))


def test_every_module_in_the_diagram_exists():
    diagram = README.partition("## How it is made")[2].partition("```")[2].partition("```")[0]
    for module in re.findall(r"[a-z_/]+\.py", diagram):
        assert list(Path("ratelimit_app").rglob(module)), module


def test_every_command_that_is_shown_exists():
    shown = set(re.findall(r"manage\.py ([a-z_]+)", README))
    assert (
        {"demo", "migrate", "check", "prune_ratelimits", "simulate_ratelimits"}
        <= shown
        <= set(get_commands())
    )
