"""Reports A: limits that are edited, deleted and made in the admin while they are in use."""

import contextlib
import itertools
import logging
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections
from django.test import Client, override_settings
from django.urls import reverse

from ratelimit_app.models import Counter
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
from tests.field_reports.asking import ENTRIES, ask, field, make_limit
from tests.races import in_processes

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

#: Seconds until a worker must have followed an edit; it takes half a second.
_PATIENCE = 30


def send_form(client, address, **changes):
    """Send the admin's form as it is shown, with some fields changed."""
    form = client.get(address).context["adminform"].form
    shown = {bound.name: bound.value() for bound in form} | changes
    sent = {name: value for name, value in shown.items() if value is not None and value is not False}
    response = client.post(address, sent)
    assert response.status_code == 302, response.context["errors"]


def edit(client, limit, **changes):
    send_form(client, reverse("admin:ratelimit_app_limit_change", args=[limit.pk]), **changes)


def delete(client, limit):
    address = reverse("admin:ratelimit_app_limit_delete", args=[limit.pk])
    assert client.post(address, {"post": "yes"}).status_code == 302


# A01: two worker processes follow --------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a01_workers_follow_edits_without_a_restart(admin_client):
    """Each process sees an edit soon, for old clients and new ones, and never half of it."""
    limit = make_limit("5/hour")
    with two_workers() as workers:
        old = "198.51.100.7"
        first, second = workers
        answers = [worker.get(old) for worker in (first, second, first, second, first)]
        assert answers == [(200, 5, rest) for rest in (4, 3, 2, 1, 0)]
        assert [worker.get(old) for worker in workers] == [(429, 5, 0)] * 2

        edit(admin_client, limit, rate="100/hour")
        for worker in workers:
            worker.follow(before=5, after=100)
        assert [worker.get(old) for worker in workers] == [(200, 100, 94), (200, 100, 93)]

        edit(admin_client, limit, rate="2/hour")
        for worker in workers:
            worker.follow(before=100, after=2)
        assert [worker.get(old) for worker in workers] == [(429, 2, 0)] * 2
        new = "198.51.100.8"
        assert [worker.get(new) for worker in (*workers, first)] == [(200, 2, 1), (200, 2, 0), (429, 2, 0)]

        edit(admin_client, limit, mode="off")
        for worker in workers:
            worker.follow(before=2, after=None)
        assert [worker.get(old) for worker in workers] == [(200, None, None)] * 2

        edit(admin_client, limit, mode="enforce")
        for worker in workers:
            worker.follow(before=None, after=2)
        assert [worker.get(old) for worker in workers] == [(429, 2, 0)] * 2


class Worker:
    """A process that answers requests, seen from outside."""

    _fresh = (f"10.0.{number // 256}.{number % 256}" for number in itertools.count())

    def __init__(self, pipe):
        self._pipe = pipe

    def get(self, address):
        """Ask the worker; return the status, the quota and what remains."""
        self._pipe.send(address)
        assert self._pipe.poll(_PATIENCE)
        return self._pipe.recv()

    def follow(self, *, before, after):
        """Ask with a new client each time, until the worker has the new quota."""
        deadline = time.monotonic() + _PATIENCE
        while (answer := self.get(next(self._fresh))) != self._first_answer(after):
            assert answer == self._first_answer(before)
            assert time.monotonic() < deadline

    @staticmethod
    def _first_answer(quota):
        return (200, quota, None if quota is None else quota - 1)


@contextlib.contextmanager
def two_workers():
    ours, theirs = zip(*(multiprocessing.get_context("spawn").Pipe() for _ in range(2)), strict=True)
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(in_processes, 2, 1, f"{__name__}:serve", theirs)
        try:
            yield [Worker(pipe) for pipe in ours]
        finally:
            for pipe in ours:
                pipe.send(None)
            assert served.result(_PATIENCE) == ["over", "over"]


def serve(index, pipes):
    """Answer requests, by a clock that runs from noon on, until there is no address any more."""
    client, started = Client(), time.monotonic()
    with (
        override_settings(
            ROOT_URLCONF="tests.field_reports.urls", RATELIMIT_LIMITS={}, RATELIMIT_REFRESH=0.5
        ),
        frozen_time(NOON) as clock,
    ):
        while address := pipes[index].recv():
            clock.advance(NOON + time.monotonic() - started - clock.now)
            response = client.get("/decorated", REMOTE_ADDR=address)
            figures = (None, None)
            if "RateLimit" in response:
                figures = (field(response, "q", "RateLimit-Policy"), field(response, "r"))
            pipes[index].send((response.status_code, *figures))
    return "over"


# A03: a limit is deleted and made anew -----------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a03_limit_deleted_and_made_anew_while_in_use(clock, admin_client, caplog):
    """A name without a limit limits nothing and is reported; a new limit of the name starts at 0."""
    limit = make_limit("5/hour")
    assert ask("/decorated", 2) + ask("/drf", 1) == [200] * 3

    delete(admin_client, limit)
    assert ask("/decorated", 5) + ask("/drf", 5) == [200] * 10
    [warning] = [record for record in caplog.records if record.name == "ratelimit_app"]
    assert (warning.levelno, "There is no limit 'case'" in warning.message) == (logging.WARNING, True)

    send_form(admin_client, reverse("admin:ratelimit_app_limit_add"), name="case", rate="5/hour")
    assert ask("/decorated", 3) + ask("/drf", 3) == [200] * 5 + [429]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a03_deleted_row_leaves_the_limit_in_code(clock, admin_client, settings, entry):
    """Deleting what overrides a limit in code is going back to that limit, not to none."""
    settings.RATELIMIT_LIMITS = {"case": {"rate": "2/hour", "path": "^/plain"}}
    limit = make_limit("100/hour")
    assert ask(entry, 3) == [200] * 3
    delete(admin_client, limit)
    assert ask(entry, 3) == [200, 200, 429]


def test_a03_limit_with_many_counters_is_deleted_at_once(
    clock, admin_client, capsys, django_assert_max_num_queries
):
    """The admin neither lists nor deletes the counters of a limit; pruning does, when they have expired."""
    limit = make_limit("5/hour")
    assert ask("/decorated", 1) == [200]
    row = Counter.objects.get()
    Counter.objects.bulk_create(
        [Counter(f"{row.key}-{number}", row.window_start, 1, row.expires_at) for number in range(20_000)],
        batch_size=1_000,
    )
    address = reverse("admin:ratelimit_app_limit_delete", args=[limit.pk])
    with (
        django_assert_max_num_queries(20),
        django_assert_max_num_queries(0, connection=connections["ratelimit"]),
    ):
        page = admin_client.get(address)
        delete(admin_client, limit)
    assert len(page.content) < 50_000
    assert row.key not in page.content.decode()

    clock.advance(7_200)
    call_command("prune_ratelimits")
    assert capsys.readouterr().out == "Expired counters deleted: 20,001\n"


# A04: a limit on everything --------------------------------------------------------------------


@pytest.fixture
def spent(clock):
    """A limit on all paths that is used up."""
    limit = make_limit("1/day", path=".*", key="global")
    assert ask("/plain", 2) == [200, 429]
    return limit


@contextlib.contextmanager
def counters_locked():
    """Hold a lock on the table of the counters, by another connection."""
    locked, release = threading.Event(), threading.Event()
    begin, end = _LOCK[connections["ratelimit"].vendor]

    def hold():
        with contextlib.closing(connections["ratelimit"]) as connection, connection.cursor() as cursor:
            for statement in begin:
                cursor.execute(statement)
            locked.set()
            release.wait(20)  # not for ever: who waits for the lock is to fail, not to hang
            cursor.execute(end)

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(hold)
        assert locked.wait(20)
        try:
            yield
            assert held.running()
        finally:
            release.set()
            held.result()


_LOCK = {
    "sqlite": (["BEGIN EXCLUSIVE"], "ROLLBACK"),
    "postgresql": (["BEGIN", "LOCK TABLE ratelimit_app_counter IN ACCESS EXCLUSIVE MODE"], "ROLLBACK"),
    "mysql": (["LOCK TABLES ratelimit_app_counter WRITE"], "UNLOCK TABLES"),
}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", [contextlib.nullcontext, counters_locked])
def test_a04_probes_are_not_limited(spent, settings, state):
    """A health check passes whatever the limits, writes no row and asks the table nothing."""
    settings.RATELIMIT_EXEMPT = ["healthz"]
    with state():
        assert ask("/healthz", 100) == [200] * 100
    assert Counter.objects.get().count == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("state", [contextlib.nullcontext, counters_locked])
def test_a04_admin_is_where_a_limit_can_always_be_changed(spent, settings, state):
    """The admin is exempt by default: logging in and editing pass the limit that is to be edited."""
    del settings.RATELIMIT_EXEMPT
    User.objects.create_superuser("root", password="secret")
    client = Client()
    with state():
        login = client.post("/admin/login/?next=/admin/", {"username": "root", "password": "secret"})
        assert (login.status_code, login["Location"]) == (302, "/admin/")
        assert client.get("/admin/").status_code == 200
        edit(client, spent, rate="3/day")
    assert Counter.objects.get().count == 1
    assert ask("/plain", 3) == [200, 200, 429]


@pytest.mark.parametrize("path", ["/healthz/../login/", "/healthz/x"])
def test_a04_exemption_is_by_the_view_and_not_by_how_the_path_begins(spent, settings, path):
    """Writing an exempt address in front of another one exempts nothing."""
    settings.RATELIMIT_EXEMPT = ["admin:", "healthz"]
    assert ask(path, 1) == [429]
    assert ask("/healthz", 1) == [200]
