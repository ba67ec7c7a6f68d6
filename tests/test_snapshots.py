import contextlib
import json
import threading

import pytest
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from model_bakery import baker

from ratelimit_app import limiter, snapshots
from ratelimit_app.models import Counter, Limit, LimitOverride
from ratelimit_app.policy import Policy
from ratelimit_app.windows import to_datetime
from tests.outages import without_server, without_table
from tests.races import in_threads

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

#: Seconds after which a thread that does not answer has failed.
PATIENCE = 30

real_commits = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {"coded": "5/min"}
    settings.RATELIMIT_REFRESH = 2


@pytest.fixture
def row():
    return baker.make(Limit, name="a", rate="3/min")


def quota(name="a"):
    """The quota that this thread meets now, ``None`` if there is no such limit."""
    return limiter.peek(name, "k").quota


def quota_elsewhere(name="a"):
    """The quota that another thread meets now."""
    found = []

    def look():
        try:
            found.append(quota(name))
        finally:
            connections.close_all()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "the other thread has no answer"
    return found[0]


def save(row, rate):
    row.rate = rate
    row.save()


# An edit by save and delete -----------------------------------------------------------------------


@real_commits
def test_edit_shows_at_once_here_and_elsewhere(row):
    assert (quota(), quota_elsewhere()) == (3, 3)
    save(row, "9/min")
    assert (quota(), quota_elsewhere()) == (9, 9)


@real_commits
def test_edit_in_a_transaction_shows_here_at_once_and_elsewhere_after_the_commit(row):
    assert (quota(), quota_elsewhere()) == (3, 3)
    with transaction.atomic():
        save(row, "9/min")
        assert (quota(), quota_elsewhere()) == (9, 3)
    assert (quota_elsewhere(), quota()) == (9, 9)


@real_commits
def test_edit_shows_elsewhere_after_the_commit_though_looked_for_before(row):
    with transaction.atomic():
        save(row, "9/min")
        assert quota_elsewhere() == 3
    assert quota_elsewhere() == 9


@real_commits
def test_edit_that_was_rolled_back_shows_nowhere(row):
    quota()
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        save(row, "9/min")
        assert quota() == 9
        raise ZeroDivisionError
    assert (quota(), quota_elsewhere()) == (3, 3)


@real_commits
def test_edit_in_a_savepoint_that_was_rolled_back_does_not_show(row):
    with transaction.atomic():
        save(row, "7/min")
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            save(row, "9/min")
            assert quota() == 9
            raise ZeroDivisionError
        assert (quota(), quota_elsewhere()) == (7, 3)
    assert (quota(), quota_elsewhere()) == (7, 7)


@real_commits
def test_edit_in_a_savepoint_that_was_kept_shows_until_the_end(row):
    with transaction.atomic():
        with transaction.atomic():
            save(row, "9/min")
        assert (quota(), quota_elsewhere()) == (9, 3)
        with transaction.atomic():
            assert quota() == 9
    assert quota_elsewhere() == 9


@real_commits
def test_edit_in_the_next_transaction_shows_too(row):
    for rate in (7, 9):
        with transaction.atomic():
            save(row, f"{rate}/min")
            assert quota() == rate
        assert quota() == rate


def test_edit_undone_by_hand_to_a_savepoint_shows_no_longer_than_the_interval(row, clock):
    savepoint = connection.savepoint()
    save(row, "9/min")
    assert quota() == 9
    connection.savepoint_rollback(savepoint)
    clock.advance(2)
    assert quota() == 3


def test_new_row_and_deleted_row_show_at_once(settings):
    settings.RATELIMIT_LIMITS = {"a": "5/min"}
    assert quota() == 5
    row = baker.make(Limit, name="a", rate="3/min")
    assert quota() == 3
    row.delete()
    assert quota() == 5


@real_commits
def test_rows_deleted_together_show_at_once_elsewhere(row):
    assert quota_elsewhere() == 3
    Limit.objects.all().delete()
    assert quota_elsewhere() is None


def test_row_made_anew_does_not_inherit_the_count(row):
    for _ in range(4):
        limiter.consume("a", "k")
    row.delete()
    baker.make(Limit, name="a", rate="3/min")
    assert limiter.consume("a", "k").used == 1
    assert sorted(Counter.objects.values_list("count", flat=True)) == [1, 3]


def test_other_quota_keeps_the_count(row):
    for _ in range(3):
        limiter.consume("a", "k")
    save(row, "5/min")
    assert limiter.peek("a", "k").remaining == 2
    save(row, "1/min")
    decision = limiter.consume("a", "k")
    assert (decision.allowed, decision.remaining, decision.retry_after) == (False, 0, 60.0)


@pytest.mark.usefixtures("clock")
class TestEditsOfOneTestCase(TestCase):
    """What a test has edited and Django has rolled back is not there for the next, in either order."""

    databases = "__all__"

    @classmethod
    def setUpTestData(cls):
        cls.row = baker.make(Limit, name="a", rate="3/min")

    def test_edit_once(self):
        self.edit()

    def test_edit_again(self):
        self.edit()

    def edit(self):
        assert quota() == 3
        save(self.row, "9/min")
        assert quota() == 9
        baker.make(Limit, name="b", rate="8/min")
        assert quota("b") == 8

    def test_no_edit(self):
        assert (quota(), quota("b")) == (3, None)


# An edit that sends no signal, and the reading that is kept ---------------------------------------


@real_commits
def test_update_shows_after_the_refresh_interval(row, clock):
    assert quota() == 3
    Limit.objects.update(rate="9/min")
    clock.advance(1.999999)
    assert quota() == 3
    clock.advance(0.000001)
    assert (quota(), quota_elsewhere()) == (9, 9)


@real_commits
def test_update_shows_at_once_without_an_interval(row, settings):
    settings.RATELIMIT_REFRESH = 0
    assert quota() == 3
    Limit.objects.update(rate="9/min")
    assert (quota(), quota_elsewhere()) == (9, 9)


def test_update_after_an_edit_in_one_transaction_shows_after_the_interval(row, clock):
    assert quota() == 3
    Limit.objects.update(rate="9/min")
    clock.advance(2)
    assert quota() == 9


@real_commits
@pytest.mark.parametrize("back", [2.0, 3600.0])
def test_clock_that_was_set_back_keeps_no_reading(row, clock, back):
    assert quota() == 3
    Limit.objects.update(rate="9/min")
    clock.advance(-back)
    assert quota() == 9


@real_commits
def test_thread_that_is_a_moment_behind_does_not_read_again(row, clock):
    assert quota() == 3
    Limit.objects.update(rate="9/min")
    clock.advance(-0.000001)
    assert quota() == 3


@real_commits
def test_hundred_decisions_within_the_interval_take_one_reading(row, clock):
    clock.advance(-3600)
    with CaptureQueriesContext(connection) as captured:
        for _ in range(100):
            limiter.consume("a", "k")
            clock.advance(0.0199)
    assert len(captured) == 2  # the limits, and their overrides


def test_hundred_decisions_in_the_transaction_of_an_edit_take_one_reading(row):
    with CaptureQueriesContext(connection) as captured:
        for _ in range(100):
            limiter.consume("a", "k")
    assert len([query for query in captured if "ratelimit_app_limit" in query["sql"]]) == 2


@real_commits
def test_decisions_of_a_policy_read_no_limits(row):
    snapshots.drop()
    with CaptureQueriesContext(connection) as captured:
        limiter.consume(Policy.parse("5/min"), "k")
    assert len(captured) == 0


@pytest.mark.parametrize("name", ["RATELIMIT_LIMITS", "RATELIMIT_REFRESH", "TIME_ZONE"])
def test_setting_that_changes_drops_the_reading(name, settings):
    before = limiter.current_limits()
    assert limiter.current_limits() is before
    setattr(settings, name, getattr(settings, name))
    assert limiter.current_limits() is not before


# An override --------------------------------------------------------------------------------------


def override(row, **fields):
    return LimitOverride.objects.create(**{"limit": row, "key": "k", "rate": "7/min", "reason": "r"} | fields)


@real_commits
def test_override_shows_at_once_here_and_elsewhere(row):
    assert (quota(), quota_elsewhere()) == (3, 3)
    made = override(row)
    assert (quota(), quota_elsewhere()) == (7, 7)
    save(made, "9/min")
    assert (quota(), quota_elsewhere()) == (9, 9)
    made.delete()
    assert (quota(), quota_elsewhere()) == (3, 3)


@real_commits
def test_override_in_a_transaction_shows_here_at_once_and_elsewhere_after_the_commit(row):
    assert (quota(), quota_elsewhere()) == (3, 3)
    with transaction.atomic():
        override(row)
        assert (quota(), quota_elsewhere()) == (7, 3)
    assert (quota_elsewhere(), quota()) == (7, 7)


@real_commits
def test_override_that_was_rolled_back_shows_nowhere(row):
    quota()
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        override(row)
        assert quota() == 7
        raise ZeroDivisionError
    assert (quota(), quota_elsewhere()) == (3, 3)


@real_commits
def test_override_made_elsewhere_shows_after_the_interval(row, clock):
    assert quota() == 3
    LimitOverride.objects.bulk_create([LimitOverride(limit=row, key="k", rate="7/min", reason="r")])
    assert quota() == 3
    clock.advance(2)
    assert quota() == 7


@real_commits
def test_override_ends_without_a_reading(row, clock):
    override(row, ends_at=to_datetime(clock.read() + 1_000_000))
    assert quota() == 7
    with CaptureQueriesContext(connection) as captured:
        clock.advance(0.999999)
        assert quota() == 7
        clock.advance(0.000001)
        assert quota() == 3
    assert len(captured) == 0


# A row that is not valid --------------------------------------------------------------------------

BAD = {
    "rate": "garbage",
    "algorithm": "magic",
    "path": "(",
    "key": "no.such.function",
    "mode": "on",
    "methods": "FETCH",
}


@real_commits
@pytest.mark.parametrize("field", BAD)
def test_bad_row_is_reported_once_and_the_rest_stays(field, row, clock, caplog):
    baker.make(Limit, name="coded", rate="9/min")
    assert quota("coded") == 9
    Limit.objects.filter(name="coded").update(**{field: BAD[field]})
    clock.advance(2)
    for _ in range(3):
        assert (quota("coded"), quota()) == (5, 3)
        clock.advance(2)
    assert [(record.levelname, "'coded'" in record.message) for record in caplog.records] == [("ERROR", True)]


def test_bad_row_of_a_fixture_is_ignored(tmp_path, caplog):
    fixture = tmp_path / "limits.json"
    fields = {"name": "coded", "rate": "9/min", "algorithm": "magic"}
    fixture.write_text(json.dumps([{"model": "ratelimit_app.limit", "pk": 1, "fields": fields}]))
    call_command("loaddata", str(fixture), verbosity=0)
    assert quota("coded") == 5
    assert "unknown 'magic'" in caplog.text


def test_path_that_python_finds_too_large_is_ignored(caplog):
    baker.make(Limit, name="coded", rate="9/min", path="a{99999999999}")
    assert quota("coded") == 5
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_bad_row_that_was_mended_counts(caplog):
    row = baker.make(Limit, name="a", rate="garbage")
    assert quota() is None
    save(row, "3/min")
    assert quota() == 3


# A table that is missing --------------------------------------------------------------------------


@contextlib.contextmanager
def no_limits(kind="table"):
    table = without_table(DEFAULT_DB_ALIAS, "ratelimit_app_limit")
    with table if kind == "table" else without_server(DEFAULT_DB_ALIAS):
        yield
    snapshots.drop()


@real_commits
@pytest.mark.parametrize("kind", ["table", "server"])
def test_limits_that_cannot_be_read_stay_as_they_were_known(row, clock, kind, caplog):
    assert quota() == 3
    with no_limits(kind):
        clock.advance(2)
        assert quota() == 3
        assert limiter.consume("coded", "k").quota == 5
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@real_commits
def test_missing_table_leaves_the_limits_in_code_and_is_reported_once(client, clock, caplog, monkeypatch):
    monkeypatch.setattr(snapshots, "_reading", None)
    with no_limits():
        for _ in range(5):
            assert limiter.consume("coded", "k").allowed
            clock.advance(2)
        assert not limiter.consume("coded", "k").allowed
        assert client.get("/healthz").status_code == 200
        assert client.get("/export").status_code == 200
        shown = client.get("/ratelimit/status/").json()["limits"]
        assert [figures["limit"] for figures in shown] == ["coded"]
    assert [record.levelname for record in caplog.records if record.levelname == "ERROR"] == ["ERROR"]


@real_commits
def test_missing_table_leaves_the_callers_transaction_usable():
    snapshots.drop()
    with no_limits(), transaction.atomic():
        assert quota("coded") == 5
        assert connections[DEFAULT_DB_ALIAS].is_usable()


# Threads ------------------------------------------------------------------------------------------


@real_commits
def test_thread_that_meets_a_stale_reading_does_not_wait_for_the_one_that_reads(row, clock, monkeypatch):
    assert quota() == 3
    clock.advance(2)
    seen, load = [], snapshots.limits.load

    def slow_load(connection):
        monkeypatch.setattr(snapshots.limits, "load", load)
        seen.append(quota_elsewhere())
        return load(connection)

    monkeypatch.setattr(snapshots.limits, "load", slow_load)
    Limit.objects.update(rate="9/min")
    assert (quota(), seen) == (9, [3])


@real_commits
def test_reading_that_an_edit_overtook_is_not_kept(row, clock, monkeypatch):
    clock.advance(-3600)
    load = snapshots.limits.load

    def overtaken(connection):
        monkeypatch.setattr(snapshots.limits, "load", load)
        before = load(connection)
        save(row, "9/min")
        return before

    monkeypatch.setattr(snapshots.limits, "load", overtaken)
    assert quota() == 3
    assert quota() == 9


@real_commits
def test_key_module_that_asks_the_limiter_while_it_is_imported_does_not_hang(settings, tmp_path, monkeypatch):
    (tmp_path / "asks_early.py").write_text(
        "from ratelimit_app import limiter\nlimiter.peek('coded', 'k')\nkey = lambda request: 'k'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    baker.make(Limit, name="early", rate="5/min", key="asks_early.key")
    assert in_threads(1, lambda _: limiter.consume("early", "k").quota) == [5]
