"""Delete the counters that count no more."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from ratelimit_app import limiter
from ratelimit_app.conf import conf
from ratelimit_app.stores import Store, store_for

#: Rows that one transaction may hold.
LARGEST_BATCH = 100_000


class Command(BaseCommand):
    help = (
        "Delete counters that count no more: of a window when the next one is over too, of a log and of a "
        "bucket when they have expired. Each batch is a transaction of its own; it may be interrupted, and "
        "run as often as one likes and several times at once."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--batch-size", type=int, default=1000, help="Rows at a time (1000).")
        parser.add_argument("--dry-run", action="store_true", help="Only count what would be deleted.")
        parser.add_argument("--database", help="The alias of the counters (RATELIMIT_DATABASE).")

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or conf.database
        if alias not in connections:
            raise CommandError(f"--database: unknown alias {alias!r} (have: {', '.join(connections)})")
        if not 1 <= options["batch_size"] <= LARGEST_BATCH:
            raise CommandError(f"--batch-size: from 1 to {LARGEST_BATCH:,} rows, got {options['batch_size']}")
        store = store_for(alias)
        if options["dry_run"]:
            self._say(
                options, f"Expired counters that would be deleted: {store.count_expired(limiter.now()):,}"
            )
            return
        self._prune(store, options)

    def _prune(self, store: Store, options: dict[str, Any]) -> None:
        now, total = limiter.now(), 0
        try:
            while deleted := store.prune(now, options["batch_size"]):
                total += deleted
                self._show_progress(options, total)
        except KeyboardInterrupt:
            raise CommandError(
                f"Interrupted after {total:,} counters; the rest can wait.", returncode=130
            ) from None
        self._say(options, f"Expired counters deleted: {total:,}")

    def _show_progress(self, options: dict[str, Any], total: int) -> None:
        if options["verbosity"] and self.stdout.isatty():
            self.stdout.write(f"\r{total:,} deleted", ending="")
            self.stdout.flush()

    def _say(self, options: dict[str, Any], message: str) -> None:
        if options["verbosity"]:
            start = "\r" if self.stdout.isatty() else ""
            self.stdout.write(start + message)
