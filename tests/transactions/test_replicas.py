"""Read replicas: all SQL of the limiter goes to the alias that is written to, wherever a router reads."""

import pytest
from django.contrib.auth.models import User
from django.core import checks
from django.core.management import call_command
from django.db import Error, connections
from django.test import Client
from model_bakery import baker

from project.models import ApiCall
from ratelimit_app import limiter, snapshots
from ratelimit_app.models import Limit

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.field_reports.urls"),
    pytest.mark.usefixtures("clock", "replica"),
]

READ_ONLY = {
    "sqlite": {"init_command": "PRAGMA query_only = ON"},
    "postgresql": {"options": "-c default_transaction_read_only=on"},
    "mysql": {"init_command": "SET SESSION TRANSACTION READ ONLY"},
}


class ReadFromReplica:
    """The router of a project that has a replica: it comes first, and knows nothing of limits."""

    def db_for_read(self, model, **hints):
        return "replica"

    def db_for_write(self, model, **hints):
        return "default"


@pytest.fixture
def replica(settings):
    """A third alias, which cannot be written to; yield the SQL that it is asked."""
    settings.DATABASE_ROUTERS = [f"{__name__}.ReadFromReplica"]
    settings.RATELIMIT_DATABASE = "default"
    settings.RATELIMIT_REFRESH = 0
    # A copy, which the tests' guard takes for the alias that it knows.
    connections["replica"] = connections["default"].copy()
    connections["replica"].settings_dict["OPTIONS"] = READ_ONLY[connections["default"].vendor]
    connections.settings["replica"] = connections["replica"].settings_dict
    asked = []

    def note(execute, sql, *rest):
        asked.append(sql)
        return execute(sql, *rest)

    with connections["replica"].execute_wrapper(note):
        yield asked
    connections["replica"].close()
    del connections["replica"], connections.settings["replica"]


def ask(path, times=1, client=None):
    return [(client or Client()).get(path).status_code for _ in range(times)]


def test_replica_of_these_tests_is_read_and_cannot_be_written(replica):
    assert not ApiCall.objects.exists()
    assert [sql for sql in replica if "project_apicall" in sql]
    with pytest.raises(Error):
        ApiCall.objects.using("replica").create(client="k")


@pytest.mark.parametrize("entry", ["/plain", "/decorated", "/drf"])
def test_t03_limit_is_met_on_the_alias_that_is_written_to(replica, entry):
    Limit.objects.create(name="case", rate="5/min", path="^/plain")
    assert ask(entry, 10) == [200] * 5 + [429] * 5
    [shown] = Client().get("/ratelimit/status/").json()["limits"]
    assert (shown["used"], shown["remaining"]) == (5, 0)
    assert replica == []


def test_everything_that_the_limiter_can_be_asked_goes_there(replica):
    baker.make(Limit, name="case", rate="5/min", algorithm="sliding_log")
    decision = limiter.consume_all({"case": "k"}, cost=3)
    limiter.settle(decision, 1)
    limiter.refund("case", "k")
    limiter.peek("case", "k")
    limiter.reset("case", "k")
    snapshots.drop()
    call_command("prune_ratelimits")
    checks.run_checks(databases=["default"])
    assert replica == []


def test_counters_page_shows_what_was_written(replica):
    baker.make(Limit, name="case", rate="5/min")
    limiter.consume("case", "k", cost=3)
    client = Client()
    client.force_login(baker.make(User, is_staff=True, is_superuser=True))
    client.get("/admin/ratelimit_app/limit/")
    assert b"case" in client.get("/admin/ratelimit_app/limit/counters/").content
    assert not [sql for sql in replica if "ratelimit_app_counter" in sql]
