"""What the counters take on the disk, and how fast they come and go, side by side in one run.

    DATABASE_URL=postgres://... python -m benchmarks.row_sizes

It makes a database of its own beside the one that the settings name, as a test run does, and drops it.
Sizes are those of tables with their indexes, filled in no order, as callers come.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterator

from django.core.management.color import no_style
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from benchmarks.bed import own_database, versions
from ratelimit_app import limiter
from ratelimit_app.conf import conf
from ratelimit_app.hashing import keyed_hash
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import Policy
from ratelimit_app.stores import row_key, store_for
from ratelimit_app.testing import frozen_time

#: Entries that a key has in its log.
ENTRIES = 10

#: An instant in microseconds, and one at which all that counted then has expired.
NOW = 1_780_315_200_000_000
LATER = NOW + 86_400_000_000

#: How each vendor is asked for the bytes of the tables, after what brings its figures up to date.
SIZE = {
    "sqlite": (
        "SELECT (page_count - freelist_count) * page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ),
    "postgresql": (
        "SELECT pg_total_relation_size('ratelimit_app_counter')"
        " + pg_total_relation_size('ratelimit_app_loggedcall')"
    ),
    "mysql": (
        "SELECT sum(stat_value) * @@innodb_page_size FROM mysql.innodb_index_stats"
        " WHERE database_name = database() AND stat_name = 'size'"
        " AND table_name IN ('ratelimit_app_counter', 'ratelimit_app_loggedcall')"
    ),
}
REFRESH = {"mysql": "ANALYZE TABLE ratelimit_app_counter, ratelimit_app_loggedcall"}

Key = Callable[[int], str]
KEYS: dict[str, Key] = {
    "by address": lambda number: (
        f"ip:{number % 223 + 1}.{number // 7 % 256}.{number // 256 % 256}.{number % 256}"
    ),
    "by a hash": lambda number: f"token:{keyed_hash(str(number))}",
    "largest": lambda number: f"{number:0100}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows that are measured (100,000)")
    parser.add_argument("--calls", type=int, default=3_000, help="decisions that are timed (3,000)")
    options = parser.parse_args()
    with own_database():
        report(connections[conf.database], options.rows, options.calls)


def report(connection: BaseDatabaseWrapper, rows: int, calls: int) -> None:
    print(f"{versions()}, {rows:,} rows")
    for kind, key in KEYS.items():
        print(f"{f'counter, {kind}':32}{bytes_a_row(connection, counters(key, rows), rows):8.0f} bytes")
        print(f"{f'entry of a log, {kind}':32}{bytes_a_row(connection, entries(key, rows), rows):8.0f} bytes")
    for algorithm in ("fixed_window", "sliding_log"):
        policy = Policy.parse("100/min", algorithm=algorithm)
        print(f"{algorithm + ', new keys':32}{begun(connection, policy, calls):8,.0f} a second")
    for kind, made in {"counters": counters, "entries of logs": entries}.items():
        print(
            f"{kind + ', pruned':32}{pruned(connection, made(KEYS['by a hash'], rows), rows):8,.0f} a second"
        )


def counters(key: Key, rows: int) -> Iterator[Counter]:
    for number in shuffled(rows):
        stored = row_key("login@code", "fixed_window", "60", key(number))
        yield Counter(key=stored, window_start=NOW, count=1, expires_at=NOW + number)


def entries(key: Key, rows: int) -> Iterator[LoggedCall]:
    for number in shuffled(rows):
        stored = row_key("login@code", "sliding_log", "60", key(number // ENTRIES))
        yield LoggedCall(key=stored, sequence=number % ENTRIES, units=1, expires_at=NOW + number)


def shuffled(rows: int) -> list[int]:
    numbers = list(range(rows))
    random.Random(1).shuffle(numbers)  # noqa: S311 (guards nothing)
    return numbers


def bytes_a_row(connection: BaseDatabaseWrapper, made: Iterator[Counter | LoggedCall], rows: int) -> float:
    empty(connection)
    before = size(connection)
    fill(made)
    return (size(connection) - before) / rows


def empty(connection: BaseDatabaseWrapper) -> None:
    tables = [model._meta.db_table for model in (Counter, LoggedCall)]
    connection.ops.execute_sql_flush(connection.ops.sql_flush(no_style(), tables, reset_sequences=True))


def size(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        for statement in [REFRESH.get(connection.vendor), SIZE[connection.vendor]]:
            if statement:
                cursor.execute(statement)
                found = cursor.fetchall()
        return int(found[0][0])


def fill(rows: Iterator[Counter | LoggedCall]) -> None:
    made = list(rows)
    type(made[0]).objects.using(conf.database).bulk_create(made, batch_size=5_000)


def begun(connection: BaseDatabaseWrapper, policy: Policy, calls: int) -> float:
    """Return how many calls of ever new keys are decided in a second, by one thread."""
    empty(connection)
    start = time.perf_counter()
    with frozen_time(NOW / 1e6):
        for number in range(calls):
            limiter.consume(policy, f"user:{number}")
    return calls / (time.perf_counter() - start)


def pruned(connection: BaseDatabaseWrapper, made: Iterator[Counter | LoggedCall], rows: int) -> float:
    """Return how many rows are deleted in a second, as the command does it."""
    empty(connection)
    fill(made)
    store, start = store_for(conf.database), time.perf_counter()
    while store.prune(LATER, 1_000):
        pass
    return rows / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
