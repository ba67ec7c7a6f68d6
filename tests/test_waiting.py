"""To wait for one's turn, blocks that run only where a limit allows it, and both of them async."""

import asyncio
import inspect
import math

import pytest
from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext
from django.urls import path

from ratelimit_app import limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.exceptions import RateLimited
from ratelimit_app.models import Counter
from ratelimit_app.policy import Policy
from tests import races
from tests.conftest import NOON

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket"]


def wait_in_loop(*args, **kwargs):
    return async_to_sync(limiter.wait_async)(*args, **kwargs)


both_kinds = pytest.mark.parametrize("wait", [limiter.wait, wait_in_loop], ids=["sync", "async"])


def mails(algorithm="fixed_window"):
    return Policy.parse("2/min", name="mails", algorithm=algorithm)


# To wait ------------------------------------------------------------------------------------------


@both_kinds
@pytest.mark.parametrize(
    ("algorithm", "slept"),
    [("fixed_window", 45), ("sliding_window", 75), ("sliding_log", 60), ("token_bucket", 30)],
)
def test_wait_sleeps_for_exactly_what_the_limit_says(wait, algorithm, slept, clock):
    clock.advance(15)
    decisions = [wait(mails(algorithm), "smtp", max_wait=80) for _ in range(3)]
    assert [decision.allowed for decision in decisions] == [True] * 3
    assert clock.now == NOON + 15 + slept


@both_kinds
def test_wait_asks_once_before_and_once_after_its_sleep(wait, clock):
    wait(mails(), "smtp", max_wait=0)
    with CaptureQueriesContext(connections["ratelimit"]) as one:
        wait(mails(), "smtp", max_wait=0)
    with CaptureQueriesContext(connections["ratelimit"]) as refused:
        wait(mails(), "smtp", max_wait=0)
    with CaptureQueriesContext(connections["ratelimit"]) as waited:
        wait(mails(), "smtp", max_wait=60)
    assert len(waited) == len(refused) + len(one)


@both_kinds
@pytest.mark.parametrize("max_wait", [0, 0.0, 59, 59.999])
def test_wait_that_would_be_longer_is_refused_at_once(wait, max_wait, clock):
    limiter.consume(mails(), "smtp", cost=2)
    decision = wait(mails(), "smtp", max_wait=max_wait)
    assert (decision.allowed, decision.retry_after, clock.now) == (False, 60.0, NOON)


@both_kinds
@pytest.mark.parametrize("max_wait", [60, 60.0, 10**9, math.inf])
def test_wait_as_long_as_it_takes_is_allowed(wait, max_wait, clock):
    limiter.consume(mails(), "smtp", cost=2)
    assert wait(mails(), "smtp", max_wait=max_wait).allowed


@both_kinds
def test_wait_that_never_helps_is_refused_at_once(wait, clock):
    decision = wait(mails(), "smtp", max_wait=math.inf, cost=3)
    assert (decision.allowed, decision.retry_after, clock.now) == (False, None, NOON)


@both_kinds
@pytest.mark.parametrize("max_wait", [-1, -0.001, math.nan, "30", None, True, 1j])
def test_wait_of_no_length_is_an_error_and_takes_nothing(wait, max_wait, clock):
    with pytest.raises(ValueError, match=r"^max_wait: a number of seconds from 0, got "):
        wait(mails(), "smtp", max_wait=max_wait)
    assert not Counter.objects.exists()


@both_kinds
def test_wait_is_no_longer_in_all_than_asked_though_others_come_first(wait, clock, monkeypatch):
    """Whoever wakes up may find that others have taken the place."""
    consume = limiter.consume

    def come_second(limit, key, **kwargs):
        consume(limit, key, cost=2)
        return consume(limit, key, **kwargs)

    monkeypatch.setattr(limiter, "consume", come_second)
    decision = wait(mails(), "smtp", max_wait=150)
    assert (decision.allowed, clock.now) == (False, NOON + 120)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_log"])
def test_waiters_in_threads_all_get_their_turn_within_the_quota(algorithm):
    policy = Policy("turns", algorithm, 3, 0.25)

    def wait(index):
        return limiter.wait(policy, "k", max_wait=30).allowed

    assert races.in_threads(9, wait) == [True] * 9
    if algorithm == "fixed_window":
        counts = list(Counter.objects.values_list("count", flat=True))
        assert (sum(counts), max(counts) <= 3) == (9, True)


# Blocks -------------------------------------------------------------------------------------------


def test_block_runs_where_it_is_allowed_and_gets_the_decision(clock):
    with limiter.limited(mails(), "k") as decision:
        assert (decision.allowed, decision.remaining) == (True, 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_block_does_not_run_where_it_is_refused(is_async, clock):
    limiter.consume(mails(), "k", cost=2)

    async def enter():
        async with limiter.limited(mails(), "k"):
            pytest.fail("it ran")

    def enter_sync():
        with limiter.limited(mails(), "k"):
            pytest.fail("it ran")

    with pytest.raises(RateLimited, match=r"^mails: refused$") as raised:
        async_to_sync(enter)() if is_async else enter_sync()
    decision = raised.value.decision
    assert (decision.allowed, decision.retry_after, decision.limit) == (False, 60.0, "mails")


def test_block_takes_its_cost_and_keeps_it_when_it_raises(clock):
    with pytest.raises(ZeroDivisionError), limiter.limited(mails(), "k", cost=2):
        raise ZeroDivisionError
    assert limiter.peek(mails(), "k").remaining == 0


def test_block_may_be_entered_again_and_within_itself(clock):
    block = limiter.limited(mails(), "k")
    with block, block:
        pass
    with pytest.raises(RateLimited), block:
        pytest.fail("it ran")


def plain(request):
    with limiter.limited(mails(), "k"):
        return HttpResponse("ok")


async def awaited(request):
    async with limiter.limited(mails(), "k"):
        return HttpResponse("ok")


async def asked(request):
    decision = await limiter.aconsume(mails(), "k")
    return HttpResponse(str(decision.allowed))


urlpatterns = [
    path("plain", plain),
    path("awaited", awaited),
    path("decorated", ratelimit("100/min")(plain)),
    path("decorated-awaited", ratelimit("100/min")(awaited)),
    path("asked", asked),
]


@pytest.mark.parametrize("where", ["/plain", "/awaited", "/decorated", "/decorated-awaited"])
@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_block_in_a_view_becomes_the_429(where, kind, client, async_client, clock):
    get = client.get if kind == "wsgi" else async_to_sync(async_client.get)
    answers = [get(where) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2]["Retry-After"] == "60"
    assert answers[2].json()["violated-policies"] == ["mails"]


@pytest.mark.parametrize("where", ["/decorated", "/decorated-awaited"])
def test_block_in_a_decorated_view_becomes_the_429_without_the_middleware(where, client, settings, clock):
    settings.MIDDLEWARE = []
    assert [client.get(where).status_code for _ in range(3)] == [200, 200, 429]


# Async --------------------------------------------------------------------------------------------

PAIRS = ["consume", "consume_all", "peek", "peek_all", "refund", "leave", "settle", "reset"]


@pytest.mark.parametrize("name", PAIRS)
def test_async_function_is_the_same_function_for_async_callers(name):
    function, twin = getattr(limiter, name), getattr(limiter, f"a{name}")
    assert inspect.iscoroutinefunction(twin)
    assert iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(function)
    assert twin.__doc__ == function.__doc__


@pytest.mark.django_db(transaction=True)
def test_async_functions_work_in_a_running_loop(clock):
    async def work():
        first = await limiter.aconsume(mails(), "k", cost=2)
        await limiter.asettle(first, 1)
        told = [first.allowed, (await limiter.apeek(mails(), "k")).remaining]
        await limiter.arefund(mails(), "k")
        told.append((await limiter.apeek_all({mails(): "k"})).remaining)
        await limiter.aconsume_all({mails(): "k"}, cost=2)
        await limiter.areset(mails(), "k")
        return [*told, (await limiter.apeek(mails(), "k")).remaining]

    assert async_to_sync(work)() == [True, 1, 2, 2]


@pytest.mark.django_db(transaction=True)
def test_what_is_held_is_given_back_in_a_running_loop(clock):
    exports = Policy.parse("1/min", name="exports", algorithm="concurrency")

    async def work():
        first = await limiter.aconsume(exports, "k")
        told = [first.allowed, (await limiter.aconsume(exports, "k")).allowed]
        await limiter.aleave(first)
        await limiter.aleave(first)  # there is nothing left of it
        return [*told, *[(await limiter.aconsume(exports, "k")).allowed for _ in range(2)]]

    assert async_to_sync(work)() == [True, False, True, False]


def test_async_functions_are_for_async_views(async_client, clock):
    get = async_to_sync(async_client.get)
    assert [get("/asked").text for _ in range(3)] == ["True", "True", "False"]


@pytest.mark.django_db(transaction=True)
def test_waiting_lets_others_go_on(clock, monkeypatch):
    from ratelimit_app import clock as clocks

    events = []

    async def slept(seconds):
        events.append("sleeps")
        await asyncio.sleep(0)
        clock.advance(seconds)

    monkeypatch.setattr(clocks, "sleep_async", slept)

    async def other():
        while "sleeps" not in events:
            await asyncio.sleep(0)
        events.append("goes on")

    async def work():
        await limiter.aconsume(mails(), "k", cost=2)
        await asyncio.gather(limiter.wait_async(mails(), "k", max_wait=60), other())

    async_to_sync(work)()
    assert events == ["sleeps", "goes on"]


# Settling -----------------------------------------------------------------------------------------


def test_settling_twice_is_an_error_and_charges_once(clock):
    decision = limiter.consume(mails(), "k")
    limiter.settle(decision, 2)
    with pytest.raises(ValueError, match=r"^decision: it was settled before$"):
        limiter.settle(decision, 0)
    assert limiter.peek(mails(), "k").used == 2


@pytest.mark.parametrize("cost", [-1, 1.0, None, True, "1"])
def test_settling_for_no_cost_is_an_error_and_leaves_it_open(cost, clock):
    decision = limiter.consume(mails(), "k")
    with pytest.raises(ValueError, match=r"^cost: a whole number of units from 0, got "):
        limiter.settle(decision, cost)
    limiter.settle(decision, 0)
    assert limiter.peek(mails(), "k").used == 0


def test_settling_several_limits_charges_each_once(clock):
    other = Policy.parse("9/h", name="other")
    decision = limiter.consume_all({mails(): "k", other: "k"})
    limiter.settle(decision.parts[0], 0)
    with pytest.raises(ValueError, match="settled before"):
        limiter.settle(decision, 4)
    assert (limiter.peek(mails(), "k").used, limiter.peek(other, "k").used) == (0, 4)


def test_settling_what_was_refused_or_not_counted_changes_nothing(clock, settings):
    limiter.consume(mails(), "k", cost=2)
    limiter.settle(limiter.consume(mails(), "k"), 9)
    limiter.settle(limiter.peek(mails(), "k"), 9)
    settings.RATELIMIT_ENABLE = False
    limiter.settle(limiter.consume(mails(), "k"), 9)
    settings.RATELIMIT_ENABLE = True
    assert limiter.peek(mails(), "k").used == 2


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_settling_at_once_in_threads_loses_nothing(algorithm, clock):
    policy = Policy.parse("100/min", name="tokens", algorithm=algorithm)

    def spend(index):
        decision = limiter.consume(policy, "k", cost=5)
        limiter.settle(decision, index % 3 * 5)  # nothing, what was taken, twice as much

    races.in_threads(12, spend)
    assert limiter.peek(policy, "k").used == 4 * 5 + 4 * 10


@pytest.mark.django_db(transaction=True)
def test_one_decision_settled_by_many_threads_is_settled_once(clock):
    policy = Policy.parse("100/min", name="tokens")
    decision = limiter.consume(policy, "k", cost=50)

    def settle(index):
        try:
            limiter.settle(decision, 45)
        except ValueError:
            return 0
        return 1

    assert sum(races.in_threads(8, settle)) == 1
    assert limiter.peek(policy, "k").used == 45
