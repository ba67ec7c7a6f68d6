"""Hosts that share one limit of a destination: in no span of time does more reach it than the limit says."""

import collections
import random

import pytest

from ratelimit_app import algorithms, clock, limiter
from ratelimit_app.models import Counter
from ratelimit_app.policy import Policy
from tests.races import in_processes

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "tests.load.test_hosts"
RATE, BURST = 300, 60
SECOND = 1_000_000
ALGORITHMS = [name for name in algorithms.names() if not algorithms.holds(name)]
SIZES = [1, 1, 1, 1, 7, 40]


def policy(algorithm):
    burst = BURST if algorithm == "token_bucket" else None
    return Policy.parse(f"{RATE}/s", name="destination", algorithm=algorithm, burst=burst)


def send(index, seconds):
    """Be a host for so long: send what passes, and return the algorithm, instant and size of all that did.

    Some wait for their turn, some try again when they are told to, and some give up; of what has
    passed, one in ten is taken for lost and sent again.
    """
    chance, sent, refused = random.Random(index), [], 0
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        algorithm, size = chance.choice(ALGORITHMS), chance.choice(SIZES)
        decision = limiter.wait(policy(algorithm), "all", max_wait=chance.choice([0, 0.1, 1]), cost=size)
        for _ in range(chance.choice([0, 1, 3])):
            if decision.allowed and chance.random() < 0.9:
                break
            sent += _passed(algorithm, decision)
            refused += not decision.allowed
            clock.sleep(min(0.1, decision.retry_after))
            decision = limiter.consume(policy(algorithm), "all", cost=size)
        sent += _passed(algorithm, decision)
        refused += not decision.allowed
    return sent, refused


def _passed(algorithm, decision):
    return [(algorithm, round(decision.at * SECOND), decision.cost)] if decision.allowed else []


def arrived(answers):
    """Return what has reached the destination by each algorithm, as instants and units in order."""
    by_algorithm = collections.defaultdict(list)
    for sent, _ in answers:
        for algorithm, at, units in sent:
            by_algorithm[algorithm].append((at, units))
    return {algorithm: sorted(calls) for algorithm, calls in by_algorithm.items()}


def most_in_a_window(calls):
    windows = collections.Counter()
    for at, units in calls:
        windows[at // SECOND] += units
    return max(windows.values())


def most_in_a_span(calls):
    return max(sum(units for at, units in calls if start <= at < start + SECOND) for start, _ in calls)


def most_beyond_the_refill(calls):
    """Return the most units that came in any span, beyond those that a bucket gets back in it."""
    most = held = 0.0
    before = calls[0][0]
    for at, units in calls:
        held = max(0.0, held - (at - before) * RATE / SECOND) + units
        most, before = max(most, held), at
    return most


@pytest.mark.parametrize(("processes", "threads"), [(2, 5), (4, 10)], ids=["10 hosts", "40 hosts"])
def test_no_more_reaches_the_destination_than_the_limit_allows(processes, threads):
    answers = in_processes(processes, threads, f"{HERE}:send", 3)
    calls = arrived(answers)
    assert sum(refused for _, refused in answers) > 0  # they wanted more
    assert set(calls) == set(ALGORITHMS)
    assert most_in_a_window(calls["fixed_window"]) <= RATE
    assert most_in_a_window(calls["sliding_window"]) <= RATE
    assert most_in_a_span(calls["sliding_log"]) <= RATE
    assert most_beyond_the_refill(calls["token_bucket"]) <= BURST
    for algorithm in ("fixed_window", "sliding_window", "sliding_log"):
        rows = Counter.objects.filter(key__contains=f":{algorithm}:")
        assert sum(row.count for row in rows) == sum(units for _, units in calls[algorithm])
