"""No connection leaks: the server has a bounded number of them, however many requests came."""

import contextlib
import functools
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections, transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from project.asgi import application
from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit
from tests.races import in_threads
from tests.serving import get, served
from tests.transactions.servers import sessions, wait_for

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("clock"),
]

ALIAS = "ratelimit"

#: A thread has one to each alias, and a second one to that of the counters.
MOST = 3


def plain(request):
    return HttpResponse("ok")


@transaction.non_atomic_requests(using="default")
@transaction.non_atomic_requests(using=ALIAS)
async def awaited(request):
    await limiter.aconsume("case", "k")
    return HttpResponse("ok")


def inside(request):
    with transaction.atomic(using=ALIAS):
        limiter.consume("case", "k")
    return HttpResponse("ok")


limit = ratelimit("case")
WAYS = {"plain": plain, "decorated": limit(plain), "awaited": limit(awaited), "inside": limit(inside)}
urlpatterns = [path(name, view) for name, view in WAYS.items()]


@pytest.fixture(autouse=True)
def _limits(settings, monkeypatch):
    settings.RATELIMIT_LIMITS = {"case": {"rate": "100000/min", "path": "^/plain"}}
    for alias in connections:
        monkeypatch.setitem(connections[alias].settings_dict, "ATOMIC_REQUESTS", True)
    connections.close_all()
    yield
    connections.close_all()


@pytest.fixture(params=[(0, False), (60, True), (None, True)], ids=str)
def age(request, monkeypatch):
    """Keep connections for so long, and look at each before a request that uses it."""
    for alias in connections:
        settings = connections[alias].settings_dict
        monkeypatch.setitem(settings, "CONN_MAX_AGE", request.param[0])
        monkeypatch.setitem(settings, "CONN_HEALTH_CHECKS", request.param[1])
    return request.param[0]


@pytest.fixture
def others():
    """Return the connections that are there without the test: the one that asks for them."""
    return sessions()


def ask(times):
    """Ask each of the ways so many times, as a server's thread does that serves one after another."""
    for name in [*WAYS] * times:
        assert Client().get(f"/{name}").status_code == 200


def test_thread_that_serves_one_request_after_another_has_a_bounded_number(age, others):
    numbers = []

    def serve(index):
        for _ in range(5):
            ask(2)
            numbers.append(len(sessions() - others))

    in_threads(1, serve)
    assert max(numbers) <= MOST
    wait_for(lambda: sessions() <= others)


def test_thread_that_ends_without_closing_leaves_none(age, others):
    def work():
        ask(1)
        for connection in connections.all(initialized_only=True):
            connection.connection.close()  # the driver's, so that the second one is not told

    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    gc.collect()
    wait_for(lambda: sessions() <= others)


def test_asgi_server_has_a_bounded_number(others):
    """Connections that are kept are Django's own trouble there: a thread of a request ends with it."""
    workers, rounds = 4, 5
    with served(application) as port, ThreadPoolExecutor(workers) as pool:
        numbers = []
        for _ in range(rounds):
            answers = pool.map(functools.partial(get, port), [f"/{name}" for name in WAYS] * workers)
            assert {status for status, _, _ in answers} == {200}
            numbers.append(len(sessions() - others))
    # Not one more for each request, of which there were sixteen a round.
    assert max(numbers) <= MOST * workers * 2
    wait_for(lambda: sessions() <= others)


def test_job_that_counts_within_transactions_for_ever_has_two(others):
    def work(index):
        for _ in range(20):
            with transaction.atomic(using=ALIAS), contextlib.suppress(ZeroDivisionError):
                limiter.consume("case", "k")
                _ = 1 // 0
        connections["default"].close()  # by which the limits were read
        wait_for(lambda: len(sessions(ALIAS) - others) == 2)
        return True

    assert in_threads(1, work) == [True]
