"""What pruning does to live decisions: how long they take beside it, and without, in one run.

    DATABASE_URL=postgres://... python -m benchmarks.prune

It makes a database of its own beside the one that the settings name, as a test run does, fills it with
expired rows and drops it. Rounds with and without the command take turns; of each kind the median counts.
"""

import argparse
import io
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from django.core.management import call_command
from django.db import connections

from benchmarks.bed import own_database, versions
from ratelimit_app import limiter
from ratelimit_app.conf import conf
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import Policy

#: Keys, and seconds between two decisions of a process on average.
KEYS, THINKING = 1_000, 0.004

Row = Counter | LoggedCall

#: By the algorithm of the live decisions, what has expired: a row for each key.
EXPIRED: dict[str, Sequence[Row]] = {
    "fixed_window": [
        Counter(key=f"old:{key}", window_start=1, count=1, expires_at=key + 1) for key in range(KEYS)
    ],
    "sliding_log": [
        LoggedCall(key=f"old:{key}", sequence=1, units=1, expires_at=key + 1) for key in range(KEYS)
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="expired rows (1,000,000)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round (5)")
    parser.add_argument("--rounds", type=int, default=8, help="with and without pruning, at most (8)")
    parser.add_argument("--processes", type=int, default=2, help="that decide (2)")
    parser.add_argument("--batch-size", type=int, default=None, help="rows at a time (the command's own)")
    parser.add_argument("--journal", choices=["wal", "default"], default="wal", help="of SQLite (wal)")
    options = parser.parse_args()
    use_journal(options.journal)
    with own_database():
        print(heading(options))
        for algorithm, rows in EXPIRED.items():  # what is left of counters is pruned after all logs
            fill(rows, options.rows)
            report(algorithm, measure(algorithm, options))


def use_journal(journal: str) -> None:
    """Let SQLite keep its journal as the project has set it, in a WAL, or as it would by itself."""
    if journal == "default":
        connections[conf.database].settings_dict["OPTIONS"].pop("init_command", None)


def fill(first: Sequence[Row], number: int) -> None:
    """Put in these rows, which have expired, and the same for later windows or calls, up to a number."""
    model = type(first[0])
    table = model._meta.db_table
    key, window, units, expires_at = (field.column for field in model._meta.concrete_fields)
    again = (
        f"INSERT INTO {table} "  # noqa: S608 (names of the models)
        f"SELECT c.{key}, c.{window} + %s, c.{units}, c.{expires_at} + %s FROM {table} c LIMIT %s"
    )
    model.objects.bulk_create(first)
    done = len(first)
    with connections[conf.database].cursor() as cursor:
        while done < number:
            cursor.execute(again, [done, done, number - done])
            done = min(2 * done, number)
            show(f"{done:,} of {number:,} rows made")


def measure(algorithm: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Time decisions in rounds with and without pruning; return the figures of each round, by name."""
    figures: dict[str, list[float]] = {"rows/s": []}
    deciding = [start(decide, options, algorithm, number) for number in range(options.processes)]
    pruning = start(prune, options, options.batch_size)
    play(deciding, 1.0)  # to warm up
    for number in range(options.rounds):
        quiet = play(deciding, options.seconds)
        pruning.send(options.seconds)
        beside = play(deciding, options.seconds)
        deleted, all_time = pruning.recv()
        if not all_time:
            break  # all is deleted, and a part of the round was quiet
        figures["rows/s"].append(deleted / options.seconds)
        for kind, seconds in (("quiet", quiet), ("beside", beside)):
            for name, part in (("p50", 0.5), ("p99", 0.99)):
                figures.setdefault(f"{name} {kind}", []).append(seconds[int(len(seconds) * part)])
        show(f"round {number + 1} of {options.rounds}")
    for pipe in [*deciding, pruning]:
        pipe.send(None)
    for process in multiprocessing.active_children():
        process.join()
    return figures


def start(work: Any, options: argparse.Namespace, *args: Any) -> Connection:
    """Start a process that works as often as it is told to; return the pipe to it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    names = {alias: str(connections[alias].settings_dict["NAME"]) for alias in connections}
    context.Process(target=serve, args=(theirs, names, options.journal, work, args), daemon=True).start()
    return ours


def serve(pipe: Connection, names: dict[str, str], journal: str, work: Any, args: tuple[Any, ...]) -> None:
    for alias, name in names.items():
        connections.databases[alias]["NAME"] = name
    use_journal(journal)
    while (seconds := pipe.recv()) is not None:
        pipe.send(work(seconds, *args))
    connections.close_all()


def play(deciding: list[Connection], seconds: float) -> list[float]:
    for pipe in deciding:
        pipe.send(seconds)
    return sorted(second for pipe in deciding for second in pipe.recv())


def decide(seconds: float, algorithm: str, number: int) -> list[float]:
    """Decide for so long; return the seconds that each decision took."""
    policy = Policy.parse("100000000/h", name=algorithm, algorithm=algorithm)
    dice, took, over = random.Random(number), [], time.perf_counter() + seconds  # noqa: S311
    while (begun := time.perf_counter()) < over:
        if limiter.consume(policy, f"k{dice.randrange(KEYS)}").receipt is None:
            raise RuntimeError("not counted")
        took.append(time.perf_counter() - begun)
        time.sleep(dice.uniform(0, 2 * THINKING))
    return took


def prune(seconds: float, batch_size: int | None) -> tuple[int, bool]:
    """Prune for so long; return how many rows were deleted, and whether it took all the time."""
    out, options = io.StringIO(), {"batch_size": batch_size} if batch_size else {}
    call_command("prune_ratelimits", max_seconds=seconds, stdout=out, **options)
    said = out.getvalue().replace(",", "").split(": ")[1]
    return int(said.split(";")[0]), ";" in said


def heading(options: argparse.Namespace) -> str:
    is_sqlite = connections[conf.database].vendor == "sqlite"
    journal = f", journal: {options.journal}" if is_sqlite else ""
    columns = ("p50 quiet", "p50 beside", "p99 quiet", "p99 beside", "p99 x", "rows/s", "rounds")
    return (
        f"{versions()}{journal}: {options.rows:,} expired rows, "
        f"{options.processes} processes that decide; microseconds\n{'':16}"
        + "".join(f"{column:>12}" for column in columns)
    )


def report(algorithm: str, figures: dict[str, list[float]]) -> None:
    show("")
    middle = {name: statistics.median(rounds) for name, rounds in figures.items() if rounds}
    columns = [middle.get(name, 0.0) * 1e6 for name in ("p50 quiet", "p50 beside", "p99 quiet", "p99 beside")]
    times = middle["p99 beside"] / middle["p99 quiet"] if "p99 quiet" in middle else 0.0
    print(
        f"{algorithm:16}"
        + "".join(f"{figure:12,.0f}" for figure in columns)
        + f"{times:12.2f}{middle.get('rows/s', 0.0):12,.0f}{len(figures['rows/s']):12}"
    )


def show(progress: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{progress:60}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
