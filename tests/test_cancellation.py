"""Async callers that are cancelled, as by a client that leaves: what was taken for them is given back."""

import asyncio
import contextlib
import threading

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpResponse
from django.test import AsyncRequestFactory
from django.urls import path

from ratelimit_app import limiter, receipts
from ratelimit_app.coroutines import in_thread
from ratelimit_app.decision import Decision
from ratelimit_app.decorators import ratelimit
from ratelimit_app.middleware import RateLimitMiddleware
from ratelimit_app.policy import Policy
from ratelimit_app.waiting import Limited
from tests.races import in_threads

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

HELD = Policy.parse("2/60s", name="held", algorithm="concurrency")
RATE = Policy.parse("2/min", name="rate")


class Gate:
    """A place in a thread: it tells when it is reached, and holds until it is opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def pass_through(self, *args):
        self.reached.set()
        assert self.opened.wait(30)
        return "k"


gate = Gate()


def slow_key(request):
    return gate.pass_through()


@ratelimit("slots", "passed")
async def view(request):
    return HttpResponse("ok")


urlpatterns = [path("view", view)]


@pytest.fixture(autouse=True)
def limits(settings):
    global gate
    gate = Gate()
    slow = f"{__name__}.slow_key"
    settings.RATELIMIT_LIMITS = {
        "slots": {"rate": "2/60s", "algorithm": "concurrency", "key": slow, "path": "^/by-path"},
        "passed": {"rate": "2/min", "charge": "successes", "key": slow, "path": "^/by-path"},
    }


async def cancel(work, times):
    """Cancel what has reached the gate so many times, open it, and wait for the end."""
    task = asyncio.ensure_future(work)
    while not gate.reached.is_set():
        await asyncio.sleep(0)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    gate.opened.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def by_path(request):
    from ratelimit_app import enforcement

    await enforcement.aenforce_matching(request)
    return HttpResponse("ok")


def ask(where):
    request = AsyncRequestFactory().get(where)
    return {
        "/view": lambda: view(request),
        "/view-within": lambda: RateLimitMiddleware(view)(request),
        "/by-path": lambda: RateLimitMiddleware(by_path)(request),
    }[where]()


@pytest.mark.parametrize("where", ["/view", "/view-within", "/by-path"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_request_that_is_cancelled_while_its_limits_are_asked_costs_and_holds_nothing(where, times):
    async_to_sync(cancel)(ask(where), times)
    assert [limiter.peek(name, "k").used for name in ("slots", "passed")] == [0, 0]


@pytest.mark.parametrize("policy", [HELD, RATE], ids=["held", "taken"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("waits", [False, True])
def test_cancelled_call_gives_back_what_it_took(policy, times, waits, monkeypatch):
    consume = limiter.consume

    def slowly(*args, **kwargs):
        gate.pass_through()
        return consume(*args, **kwargs)

    monkeypatch.setattr(limiter, "consume", slowly)
    if waits:
        call = limiter.wait_async(policy, "k", max_wait=1)
    else:
        call = in_thread(slowly, undo=receipts.undo)(policy, "k")
    async_to_sync(cancel)(call, times)
    assert limiter.peek(policy, "k").used == 0


def test_thread_that_fails_though_its_caller_is_cancelled_has_nothing_to_undo():
    undone = []

    def fail():
        gate.pass_through()
        raise KeyError

    async_to_sync(cancel)(in_thread(fail, undo=undone.append)(), 1)
    assert undone == []


# A block that several share -----------------------------------------------------------------------


def test_task_that_is_cancelled_while_it_enters_leaves_the_others_alone():
    decisions = [Decision(True, "a", "k", 1), Decision(True, "b", "k", 1)]
    waiting, left = iter(decisions), []

    def take():
        decision = next(waiting)
        if decision is decisions[1]:
            gate.pass_through()
        return decision

    shared = Limited(take, left.append)

    async def enter():
        async with shared:
            pytest.fail("it was cancelled before")

    async def first():
        async with shared:
            await cancel(enter(), 1)
            assert left == [decisions[1]]

    async_to_sync(first)()
    assert left == decisions[::-1]


def test_each_thread_leaves_what_it_has_entered():
    numbers, lock = iter(range(100)), threading.Lock()
    left, both = [], threading.Barrier(2)

    def take():
        with lock:
            return Decision(True, "a", str(next(numbers)), 1)

    shared = Limited(take, lambda decision: left.append((threading.get_ident(), decision.key)))

    def work(index):
        entered = []
        for _ in range(2):
            with shared as outer, shared as inner:
                both.wait(30)
                entered += [inner.key, outer.key]
            both.wait(30)
        return threading.get_ident(), entered

    for thread, entered in in_threads(2, work):
        assert [key for ident, key in left if ident == thread] == entered
