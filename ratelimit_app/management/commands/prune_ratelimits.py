"""Delete the counters that count no more."""

import math
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from ratelimit_app import clock, limiter, pruning
from ratelimit_app.conf import conf
from ratelimit_app.management.stopping import asked_to_stop
from ratelimit_app.stores import Store, store_for

#: Rows that one transaction may hold.
LARGEST_BATCH = 100_000


class Command(BaseCommand):
    help = (
        "Delete counters that count no more: of a window when the next one is over too, of a log and of a "
        "bucket when they have expired. Each batch is a transaction of its own, with a rest after it; it may "
        "be interrupted, and run as often as one likes and several times at once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--batch-size", type=int, help="Rows at a time (PostgreSQL: 1000, others: 200).")
        parser.add_argument(
            "--max-seconds", type=float, default=None, help="End after the batch in which that time runs out."
        )
        parser.add_argument("--dry-run", action="store_true", help="Only count what would be deleted.")
        parser.add_argument("--database", help="The alias of the counters (RATELIMIT_DATABASE).")

    def handle(self, *args: Any, **options: Any) -> None:
        store = store_for(_checked_alias(options["database"]))
        _check_batch_size(options["batch_size"])
        _check_seconds(options["max_seconds"])
        now = limiter.now()
        if options["dry_run"]:
            expired = store.count_expired(now)
            self._say(options, f"Expired counters that would be deleted: {expired:,}")
        else:
            self._prune(store, now, options)

    def _prune(self, store: Store, now: int, options: dict[str, Any]) -> None:
        ends_at = clock.monotonic() + (options["max_seconds"] or math.inf)
        shows = options["verbosity"] and self.stdout.isatty()
        expired, total = store.count_expired(now) if shows else 0, 0
        with asked_to_stop() as stop:
            for deleted in pruning.batches(store, now, options["batch_size"]):
                total += deleted
                if shows:
                    self._show_progress(total, expired)
                if stop.by or _is_over(ends_at):
                    break
        if stop.by:
            raise CommandError(
                f"{stop.by.name}: ended after {total:,} expired counters; the rest can wait.",
                returncode=128 + stop.by,
            )
        left = "; the time is over, and some are left" if _is_over(ends_at) and store.has_expired(now) else ""
        self._say(options, f"Expired counters deleted: {total:,}{left}")

    def _show_progress(self, total: int, expired: int) -> None:
        self.stdout.write(f"\r{total:,} of {max(total, expired):,} deleted", ending="")
        self.stdout.flush()

    def _say(self, options: dict[str, Any], message: str) -> None:
        if options["verbosity"]:
            start = "\r" if self.stdout.isatty() else ""
            self.stdout.write(start + message)


def _checked_alias(named: str | None) -> str:
    alias = named or conf.database
    if alias not in connections:
        raise CommandError(f"--database: unknown alias {alias!r} (have: {', '.join(connections)})")
    return alias


def _check_batch_size(size: int | None) -> None:
    if size is not None and not 1 <= size <= LARGEST_BATCH:
        raise CommandError(f"--batch-size: from 1 to {LARGEST_BATCH:,} rows, got {size}")


def _check_seconds(seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < math.inf:
        raise CommandError(f"--max-seconds: a number of seconds above 0, got {seconds:g}")


def _is_over(ends_at: float) -> bool:
    return clock.monotonic() >= ends_at
