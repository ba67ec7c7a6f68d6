"""Reports R: counting under concurrency."""

import collections
import contextlib
import itertools
import multiprocessing

import pytest
from django.db import connections, transaction
from model_bakery import baker

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit
from tests.conftest import NOON
from tests.races import in_processes, in_threads

pytestmark = pytest.mark.django_db(transaction=True)

_ROUNDS = 5


def hit_five_times_a_round(index, barrier):
    """Return the limit and the round of each of this thread's calls that was admitted."""
    admitted = []
    for number in range(_ROUNDS):
        barrier.wait(60)
        for name in ("free", "counted"):
            calls = [limiter.consume(name, f"client:{number}") for _ in range(5)]
            admitted += [(name, number) for call in calls if call.allowed]
    return admitted


def test_r01_parallel_requests_are_admitted_quota_times():
    """A burst over several workers gets the quota, whether or not refused calls are counted."""
    baker.make(Limit, name="free", rate="20/min")
    baker.make(Limit, name="counted", rate="20/min", count_denied=True)
    barrier = multiprocessing.get_context("spawn").Barrier(40)
    answers = in_processes(4, 10, f"{__name__}:hit_five_times_a_round", barrier, frozen_at=NOON)
    admitted = collections.Counter(itertools.chain.from_iterable(answers))
    assert admitted == dict.fromkeys(itertools.product(("free", "counted"), range(_ROUNDS)), 20)
    assert sorted(Counter.objects.values_list("count", flat=True)) == [20] * _ROUNDS + [200] * _ROUNDS


def test_r02_first_hits_of_a_new_window_make_one_row(clock):
    """Callers who all find no row neither fail nor make two, nor are all let in."""
    baker.make(Limit, name="new", rate="10/min")
    allowed = in_threads(50, lambda index: limiter.consume("new", "never seen before").allowed)
    assert sorted(allowed) == [False] * 40 + [True] * 10
    assert [counter.count for counter in Counter.objects.all()] == [10]


@pytest.mark.parametrize("alias", ["default", "ratelimit"])
def test_r02_first_hits_inside_transactions_make_one_row(clock, alias):
    """Nor does a lost race for the insert poison the caller's transaction."""
    baker.make(Limit, name="new", rate="10/min")

    def hit_twice(index):
        return [hit_in_transaction(alias) for _ in range(2)]

    # Half as many threads: inside atomic() each may hold two connections to the server.
    allowed = [answer for answers in in_threads(25, hit_twice) for answer in answers]
    assert sorted(allowed) == [False] * 40 + [True] * 10
    assert [counter.count for counter in Counter.objects.all()] == [10]


def hit_in_transaction(alias):
    with transaction.atomic(using=alias):
        allowed = limiter.consume("new", "never seen before").allowed
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
    return allowed


@pytest.mark.parametrize("is_inside", [False, True])
def test_r04_limits_taken_in_either_order_do_not_deadlock(clock, caplog, is_inside):
    """Nor is a lock that is met read as a database that is away, and the call let through uncounted."""
    for name in ("user", "address"):
        baker.make(Limit, name=name, rate="10000/min")

    def hit(index):
        keys = {"user": "k", "address": "k"}
        keys = keys if index % 2 else dict(reversed(keys.items()))
        with transaction.atomic(using="default") if is_inside else contextlib.nullcontext():
            return [limiter.consume_all(keys).allowed for _ in range(200)]

    assert in_threads(4, hit) == [[True] * 200] * 4
    assert [counter.count for counter in Counter.objects.all()] == [800, 800]
    assert caplog.records == []
