"""Limits of how many run at once: taken on entry, given back at the end, whatever the end is."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections
from django.http import HttpResponse, StreamingHttpResponse
from django.test import AsyncRequestFactory
from django.urls import path
from model_bakery import baker
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import enforcement, limiter
from ratelimit_app.decision import Decision
from ratelimit_app.decorators import ratelimit
from ratelimit_app.exceptions import RateLimited
from ratelimit_app.middleware import RateLimitMiddleware
from ratelimit_app.models import Limit, LoggedCall
from ratelimit_app.policy import Policy
from ratelimit_app.throttling import RateLimitThrottle
from ratelimit_app.waiting import Limited
from tests.conftest import NOON
from tests.races import in_processes, in_threads

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

HERE = "tests.test_concurrency"
TWO = Policy.parse("2/60s", name="exports", algorithm="concurrency")
ME = "ip:127.0.0.1"


def in_flight():
    return limiter.peek("exports", ME).used


@ratelimit("exports")
def plain(request):
    return HttpResponse(str(in_flight()))


@ratelimit("exports")
async def awaited(request):
    return HttpResponse(str((await limiter.apeek("exports", ME)).used))


@ratelimit("exports")
def streaming(request):
    return StreamingHttpResponse(str(in_flight()) for _ in range(2))


@ratelimit("exports")
def failing(request):
    raise RuntimeError("no")


class Throttled(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "exports"

    def get(self, request):
        return Response(in_flight())


urlpatterns = [
    path("plain", plain),
    path("awaited", awaited),
    path("streaming", streaming),
    path("failing", failing),
    path("throttled", Throttled.as_view()),
    path("matched", lambda request: HttpResponse(str(in_flight()))),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        "exports": {"rate": "2/60s", "algorithm": "concurrency", "path": "^/matched"},
    }


# A block ------------------------------------------------------------------------------------------


def test_block_holds_its_unit_until_it_ends():
    with limiter.limited(TWO, "k") as decision:
        assert decision.remaining == 1
        assert limiter.peek(TWO, "k").used == 1
    assert limiter.peek(TWO, "k").used == 0


def test_block_that_fails_gives_back_too():
    with pytest.raises(KeyError), limiter.limited(TWO, "k"):
        raise KeyError
    assert limiter.peek(TWO, "k").used == 0


def test_block_that_has_no_room_is_not_run_and_is_told_when_there_will_be_some(clock):
    with limiter.limited(TWO, "k"):
        clock.advance(10)
        with limiter.limited(TWO, "k"):
            with pytest.raises(RateLimited) as raised, limiter.limited(TWO, "k"):
                pytest.fail("there was no room")
            assert raised.value.decision.retry_after == 50
        with limiter.limited(TWO, "k"):
            pass


def test_each_gives_back_its_own_and_not_what_another_holds(clock):
    first = limiter.limited(TWO, "k")
    first.__enter__()
    clock.advance(30)
    with limiter.limited(TWO, "k"):
        first.__exit__(None, None, None)
        clock.advance(40)  # the first one's time is over, that of the second is not
        assert limiter.peek(TWO, "k").used == 1


def test_what_a_dead_caller_held_is_free_after_its_time(clock):
    for _ in range(2):
        assert limiter.consume(TWO, "k").allowed
    clock.advance(59.999_999)
    assert not limiter.consume(TWO, "k").allowed
    clock.advance(0.000_001)
    assert limiter.consume(TWO, "k").allowed


def test_leaving_twice_gives_back_once():
    first, _ = limiter.consume(TWO, "k"), limiter.consume(TWO, "k")
    limiter.leave(first)
    limiter.leave(first)
    assert limiter.peek(TWO, "k").used == 1


@pytest.mark.parametrize("forget", ["prune", "reset"])
def test_leaving_late_frees_nobody_elses_unit(clock, forget):
    late = [limiter.consume(TWO, "k") for _ in range(2)]
    clock.advance(200)
    if forget == "prune":
        call_command("prune_ratelimits", verbosity=0)
    else:
        limiter.reset(TWO, "k")
    assert [limiter.consume(TWO, "k").allowed for _ in range(3)] == [True, True, False]
    for decision in late:
        limiter.leave(decision)
    assert limiter.peek(TWO, "k").used == 2


def test_several_limits_are_held_together_or_not_at_all():
    everyone = Policy.parse("1/60s", name="everyone", algorithm="concurrency")
    decision = limiter.consume_all({TWO: "a", everyone: "g"})
    assert not limiter.consume_all({TWO: "b", everyone: "g"}).allowed
    assert limiter.peek(TWO, "b").used == 0
    limiter.leave(decision)
    assert limiter.consume_all({TWO: "b", everyone: "g"}).allowed


# A request ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["/plain", "/awaited", "/throttled", "/matched"])
@pytest.mark.parametrize("middleware", [True, False])
def test_request_holds_its_unit_until_its_response_is_closed(client, settings, where, middleware):
    if not middleware:
        settings.MIDDLEWARE = []
    held = "0" if where == "/matched" and not middleware else "1"
    for _ in range(3):
        assert client.get(where).content.decode() == held
    assert in_flight() == 0
    assert not LoggedCall.objects.exists()


def test_stream_holds_its_unit_until_its_end(client):
    response = client.get("/streaming")
    assert in_flight() == 1
    assert b"".join(response.streaming_content) == b"11"  # at whose end the client closes it
    assert in_flight() == 0


@pytest.mark.parametrize("middleware", [True, False])
def test_view_that_fails_gives_back_too(client, settings, middleware):
    if not middleware:
        settings.MIDDLEWARE = []
    client.raise_request_exception = False
    assert [client.get("/failing").status_code for _ in range(3)] == [500, 500, 500]
    assert in_flight() == 0


@pytest.mark.parametrize("where", ["/plain", "/awaited", "/throttled", "/matched"])
def test_request_without_room_is_refused(client, clock, where):
    for _ in range(2):
        limiter.consume("exports", ME)
    answer = client.get(where)
    assert (answer.status_code, answer["Retry-After"]) == (429, "60")
    assert in_flight() == 2


def test_block_in_async_code_holds_its_unit():
    async def work():
        async with limiter.limited(TWO, "k") as decision:
            return decision.remaining, (await limiter.apeek(TWO, "k")).used

    assert async_to_sync(work)() == (1, 1)
    assert limiter.peek(TWO, "k").used == 0


def test_block_that_another_task_leaves_gives_back():
    """The event loop closes in a task of its own what a stream has left open."""

    async def parts():
        async with limiter.limited(TWO, "k"):
            yield

    async def work():
        stream = parts()
        await anext(stream)
        await asyncio.ensure_future(stream.aclose())

    async_to_sync(work)()
    assert limiter.peek(TWO, "k").used == 0


@pytest.mark.django_db(transaction=True)
def test_request_whose_client_has_left_holds_nothing():
    async def leave_early(request):
        await enforcement.aenforce(request, ["exports"])
        assert (await limiter.apeek("exports", ME)).used == 1
        raise asyncio.CancelledError

    async def ask():
        with contextlib.suppress(asyncio.CancelledError):
            await RateLimitMiddleware(leave_early)(AsyncRequestFactory().get("/"))
        return (await limiter.apeek("exports", ME)).used

    assert async_to_sync(ask)() == 0


def test_block_that_is_cancelled_while_it_takes_gives_back():
    started, may_go_on, left = threading.Event(), threading.Event(), []

    def take():
        started.set()
        assert may_go_on.wait(30)
        return Decision(True, "exports", "k", 1)

    async def enter():
        async with Limited(take, left.append):
            pytest.fail("it was cancelled before")

    async def cancel():
        task = asyncio.ensure_future(enter())
        while not started.is_set():
            await asyncio.sleep(0)
        task.cancel()
        asyncio.get_running_loop().call_soon(may_go_on.set)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async_to_sync(cancel)()
    assert len(left) == 1


# Many at once -------------------------------------------------------------------------------------


def enter_and_leave(index, times):
    """Enter as often as there is room; return the most that were inside at once, as this process sees it."""
    inside, most, lock = _inside, 0, _lock
    for _ in range(times):
        try:
            with limiter.limited(TWO, "race"):
                with lock:
                    inside.append(index)
                    most = max(most, len(inside))
                time.sleep(0.002)  # so that they meet
                with lock:
                    inside.remove(index)
        except RateLimited:
            pass
    return most


_inside: list[int] = []
_lock = threading.Lock()


@pytest.mark.django_db(transaction=True)
def test_threads_are_never_more_inside_than_the_quota():
    most = in_threads(8, lambda index: enter_and_leave(index, 12))
    assert 1 <= max(most) <= 2
    assert limiter.peek(TWO, "race").used == 0


def take(index):
    return limiter.consume(Policy.parse("5/60s", name="race", algorithm="concurrency"), "k").allowed


@pytest.mark.django_db(transaction=True)
def test_processes_take_exactly_the_quota(clock):
    assert sum(in_processes(2, 6, f"{HERE}:take", frozen_at=NOON)) == 5


KILLED = """
import django, os, signal, sys
django.setup()
from django.db import connections
for alias, name in zip(sys.argv[1::2], sys.argv[2::2]):
    connections.databases[alias]["NAME"] = name
from ratelimit_app import enforcement, limiter
from ratelimit_app.decision import Decision
from ratelimit_app.policy import Policy
with limiter.limited(Policy.parse("1/2s", name="killed", algorithm="concurrency"), "k"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.django_db(transaction=True)
def test_killed_process_holds_its_unit_for_no_longer_than_its_time():
    names = [part for alias in connections for part in (alias, str(connections[alias].settings_dict["NAME"]))]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings"}
    done = subprocess.run([sys.executable, "-c", KILLED, *names], env=environment, timeout=60)
    assert done.returncode == -signal.SIGKILL
    policy = Policy.parse("1/2s", name="killed", algorithm="concurrency")
    assert limiter.wait(policy, "k", max_wait=3).allowed


# What it cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rate": "5/month"}, "rate"),
        ({"rate": "100001/min"}, "rate"),
        ({"rate": "5/min", "burst": 5}, "burst"),
        ({"rate": "5/min", "charge": "failures"}, "charge"),
        ({"rate": "5/min", "count_denied": True}, "count_denied"),
    ],
)
def test_what_it_cannot_do_is_an_error_of_the_field(fields, field):
    limit = baker.prepare(Limit, name="a", algorithm="concurrency", **fields)
    with pytest.raises(ValidationError) as raised:
        limit.full_clean()
    assert field in raised.value.message_dict
