"""What a decision costs by each way of counting, side by side in one run.

    DATABASE_URL=postgres://... python -m benchmarks.decision_costs

It makes a database of its own beside the one that the settings name, as a test run does, and drops it.
Short rounds take turns, and the fastest of each kind counts: what else the machine does only adds.
"""

import argparse
import time
from collections.abc import Callable, Iterator

from benchmarks.bed import own_database, versions
from ratelimit_app import algorithms, limiter
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import Policy

#: A rate that no run comes near, and the entries in the logs that are compared.
ROOMY = "100000000/h"
ENTRIES = (10, 1_000, 100_000)

Call = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=40, help="decisions in a round (40)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each kind (50)")
    options = parser.parse_args()
    with own_database():
        report(measure(dict(kinds()), options.calls, options.rounds))


def kinds() -> Iterator[tuple[str, Call]]:
    """Yield what is measured: a name, and a call that makes one decision."""
    by_time = [name for name in algorithms.names() if not algorithms.holds(name)]
    for name in by_time:
        yield name, taking([Policy.parse(ROOMY, name=name, algorithm=name)])
    yield "concurrency, taken and left", holding(Policy.parse("100/h", algorithm="concurrency"))
    for entries in ENTRIES:
        yield f"sliding_log, {entries:,} in it", taking([filled_log(entries)])
    yield "three limits", taking([Policy.parse(ROOMY, name=f"three-{number}") for number in range(3)])
    for name in by_time:
        yield f"{name}, refused", refusing(Policy.parse("1/h", name=f"{name}-full", algorithm=name))


def taking(policies: list[Policy]) -> Call:
    keys = dict.fromkeys(policies, "k")

    def call() -> None:
        if not limiter.consume_all(keys).allowed:
            raise RuntimeError("refused what had room")

    return call


def holding(policy: Policy) -> Call:
    def call() -> None:
        with limiter.limited(policy, "k"):
            pass

    return call


def refusing(policy: Policy) -> Call:
    limiter.consume(policy, "k")

    def call() -> None:
        if limiter.consume(policy, "k").allowed:
            raise RuntimeError("allowed what had no room")

    return call


def filled_log(entries: int) -> Policy:
    """Make a log of so many entries that still count, with room for more."""
    policy = Policy.parse(ROOMY, name=f"log-{entries}", algorithm="sliding_log")
    limiter.consume(policy, "k")
    (first,) = LoggedCall.objects.filter(key__startswith=policy.name)
    LoggedCall.objects.bulk_create(
        (
            LoggedCall(key=first.key, sequence=number, units=1, expires_at=first.expires_at + number)
            for number in range(2, entries + 1)
        ),
        batch_size=5_000,
    )
    Counter.objects.filter(key=first.key).update(count=entries)
    return policy


def measure(calls: dict[str, Call], number: int, rounds: int) -> dict[str, list[float]]:
    """Time rounds of so many calls, each kind in turn; return seconds a call, by kind."""
    seconds: dict[str, list[float]] = {kind: [] for kind in calls}
    for _ in range(rounds):
        for kind, call in calls.items():
            start = time.perf_counter()
            for _ in range(number):
                call()
            seconds[kind].append((time.perf_counter() - start) / number)
    return seconds


def report(seconds: dict[str, list[float]]) -> None:
    print(versions())
    base = min(seconds["fixed_window"])
    print(f"{'':32}{'us a decision':>14}{'x fixed_window':>16}")
    for kind, rounds in seconds.items():
        print(f"{kind:32}{min(rounds) * 1e6:14.0f}{min(rounds) / base:16.2f}")


if __name__ == "__main__":
    main()
