import pytest
from django.apps import apps
from django.db import connections, router

from project.models import ApiCall
from ratelimit_app.models import Counter, Limit, LimitOverride, LoggedCall
from ratelimit_app.routers import CounterRouter

ON_FILES = connections["default"].vendor == "sqlite"
OTHERS = [
    *(("ratelimit_app", "limit"), ("ratelimit_app", "limitoverride")),
    *(("project", "apicall"), ("auth", "user"), ("auth", None)),
]


@pytest.fixture
def shared(monkeypatch):
    """Make the two aliases two connections to one database."""
    for name in ("ENGINE", "HOST", "PORT", "NAME"):
        monkeypatch.setitem(
            connections["ratelimit"].settings_dict, name, connections["default"].settings_dict[name]
        )


@pytest.fixture
def apart(monkeypatch):
    monkeypatch.setitem(connections["ratelimit"].settings_dict, "NAME", "another")


@pytest.mark.parametrize("model", [Counter, LoggedCall])
def test_counters_live_on_the_alias_of_the_setting(settings, model):
    assert router.db_for_write(model) == router.db_for_read(model) == "ratelimit"
    settings.RATELIMIT_DATABASE = "default"
    assert router.db_for_write(model) == router.db_for_read(model) == "default"


@pytest.mark.parametrize("model", [Limit, LimitOverride, ApiCall, apps.get_model("auth", "User")])
def test_everything_else_is_left_to_the_other_routers(model):
    assert CounterRouter().db_for_read(model) is None
    assert CounterRouter().db_for_write(model) is None
    assert router.db_for_write(model) == "default"


def test_database_of_its_own_gets_the_counters_alone(apart):
    for model_name in ("counter", "loggedcall"):
        assert router.allow_migrate("ratelimit", "ratelimit_app", model_name=model_name)
    for app_label, model_name in OTHERS:
        assert not router.allow_migrate("ratelimit", app_label, model_name=model_name)


@pytest.mark.parametrize(("app_label", "model_name"), [*OTHERS, ("ratelimit_app", "counter")])
def test_other_databases_get_everything(app_label, model_name, apart):
    assert router.allow_migrate("default", app_label, model_name=model_name)


@pytest.mark.parametrize(("app_label", "model_name"), [*OTHERS, ("ratelimit_app", "counter")])
def test_shared_database_gets_everything_by_either_alias(app_label, model_name, shared):
    for alias in ("default", "ratelimit"):
        assert router.allow_migrate(alias, app_label, model_name=model_name)


@pytest.mark.parametrize(("app_label", "model_name"), [*OTHERS, ("ratelimit_app", "counter")])
def test_counters_on_the_default_database_keep_nothing_away_from_it(app_label, model_name, settings):
    settings.RATELIMIT_DATABASE = "default"
    assert CounterRouter().allow_migrate("default", app_label, model_name) is None


@pytest.mark.django_db
def test_tables_are_where_the_router_puts_them():
    tables = {alias: set(connections[alias].introspection.table_names()) for alias in connections}
    assert {"ratelimit_app_limit", "project_apicall"} <= tables["default"]
    assert {"ratelimit_app_counter", "ratelimit_app_loggedcall"} <= tables["ratelimit"]
    if ON_FILES:
        assert tables["ratelimit"] == {
            "ratelimit_app_counter",
            "ratelimit_app_loggedcall",
            "django_migrations",
        }
