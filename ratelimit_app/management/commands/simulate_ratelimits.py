"""Show what a limit would have done, by an access log or in a named scenario."""

import contextlib
import dataclasses
import functools
import os
import random
import stat
import zlib
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ratelimit_app import algorithms, limiter
from ratelimit_app.limits import LiveLimit
from ratelimit_app.models import Mode
from ratelimit_app.policy import check_units
from ratelimit_app.simulation import log_arrivals, progress, report, scenarios
from ratelimit_app.simulation.access_log import AccessLog, opened
from ratelimit_app.simulation.progress import Watch
from ratelimit_app.simulation.report import Result
from ratelimit_app.simulation.trials import Tier, Trial, limits_of, replay

_INPUT = (
    "A scenario ({}), or an access log of nginx or Apache, common or combined, gzip or not "
    "(-: standard input)."
)
_BY = (
    "Whom a log is counted by: the client's address (ip), the account or else the address (user), the "
    "path, or everyone together (global). Default: as the --limit is, if a log tells that, or by ip."
)


class Command(BaseCommand):
    help = (
        "Replay an access log, or a named scenario, through the real algorithms on a virtual clock, and "
        "print what would have passed. It counts in memory; of the database it reads the --limit, if any."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("input", metavar="INPUT", help=_INPUT.format(", ".join(scenarios.names())))
        parser.add_argument("--rate", help="Such as 60/min. A log needs it, or --limit; a scenario has one.")
        parser.add_argument("--limit", metavar="NAME", help="A limit of this project, instead of --rate.")
        parser.add_argument(
            "--algorithm",
            action="append",
            choices=algorithms.names(),
            help="May be repeated. Default: all that can count the rate.",
        )
        parser.add_argument("--burst", type=int, metavar="UNITS", help="Of a token bucket (the quota).")
        parser.add_argument("--by", choices=list(log_arrivals.KEYS), help=_BY)
        parser.add_argument("--top", type=int, default=5, help="Most refused keys of a log to show (5).")
        parser.add_argument("--seed", type=int, default=1, help="Of what is random in a scenario (1).")
        parser.add_argument("--plot", type=Path, metavar="FILE", help="Draw passed and refused over time.")

    def handle(self, *args: Any, **options: Any) -> None:
        _check(options)
        draw = _plotter(options["plot"]) if options["plot"] else None
        try:
            result = self._simulate(options)
        except KeyboardInterrupt:
            raise CommandError("Interrupted.", returncode=130) from None
        try:
            self._print(result, options["verbosity"])
        except BrokenPipeError:  # whoever reads it has had enough, as ``head`` has
            _leave_unread(self.stdout.fileno())
        if draw:
            draw(result)

    def _simulate(self, options: dict[str, Any]) -> Result:
        if options["input"] not in scenarios.names():
            return self._replay_log(_limits(options, None, None), options)
        scenario = scenarios.load(options["input"])
        limits = _limits(options, scenario.RATE, scenario.BURST)
        rng = random.Random(options["seed"])  # noqa: S311 (to be repeated, not to be unguessable)
        try:
            return scenario.run(limits, rng, _watch(options, unit=" decisions"))
        except ValueError as error:  # a multiple of the rate may be more than an algorithm can count
            raise CommandError(f"--rate: too much for {options['input']} ({error})") from error

    def _replay_log(self, limits: Sequence[LiveLimit], options: dict[str, Any]) -> Result:
        trials = [Trial(scenarios.named(limit), [Tier(limit)]) for limit in limits]
        limit = limits[0] if options["limit"] else None
        by = options["by"] or (self._by_key_of(limit, options["verbosity"]) if limit else "ip")
        with _log(options["input"], _watch(options, unit="B")) as log:
            replay(log_arrivals.arrivals(log, by, limit), trials)
        if not log.good:
            raise CommandError(
                f"INPUT: of {log.bad:,} lines of {options['input']}, none is in the common or the combined "
                f"format{_first_bad(log)}"
            )
        if options["verbosity"]:
            self._say_what_was_wrong(log)
        title = f"{limits[0].policy.name} by {by}, {log.good:,} lines of {options['input']}"
        tables = [report.summary(title, trials), *report.refused_keys(trials, options["top"])]
        return Result(tables, [(trial.title, trial.tally) for trial in trials])

    def _print(self, result: Result, verbosity: int) -> None:
        for number, table in enumerate(result.tables):
            self.stdout.write("\n" * bool(number), ending="")
            if verbosity:
                self.stdout.write(f"{table.title}:")
            self.stdout.write(report.text(table))
        self.stdout.flush()

    def _by_key_of(self, limit: LiveLimit, verbosity: int) -> str:
        by = log_arrivals.by_key_of(limit)
        if by is None and verbosity:
            self.stderr.write(
                f"--limit: a log does not tell the key of {limit.name!r}: counted by ip, or as --by says"
            )
        return by or "ip"

    def _say_what_was_wrong(self, log: AccessLog) -> None:
        if log.bad:
            self.stderr.write(f"Bad lines, skipped: {log.bad:,}{_first_bad(log)}")
        if log.late:
            self.stderr.write(f"Lines too far out of order, counted late: {log.late:,}")


def _check(options: dict[str, Any]) -> None:
    if options["top"] < 0:
        raise CommandError(f"--top: a number of keys from 0, got {options['top']}")
    if options["by"] and options["input"] in scenarios.names():
        raise CommandError(f"--by: only for a log, {options['input']} is a scenario")
    for other in ("rate", "algorithm", "burst"):
        if options["limit"] is not None and options[other] is not None:
            raise CommandError(f"--{other}: not beside --limit, which has its own")
    if options["input"] not in (*scenarios.names(), "-"):
        _check_file(options["input"])


def _check_file(name: str) -> None:
    """Say first what is wrong with the input: a scenario may be misspelled."""
    try:
        is_directory = stat.S_ISDIR(Path(name).stat().st_mode)
    except FileNotFoundError:
        have = ", ".join(scenarios.names())
        raise CommandError(f"INPUT: there is no file {name!r}, nor such a scenario (have: {have})") from None
    except OSError as error:
        raise CommandError(f"INPUT: {name} cannot be read: {error}") from error
    if is_directory:
        raise CommandError(f"INPUT: {name} is a directory")


def _limits(options: dict[str, Any], rate: str | None, burst: int | None) -> list[LiveLimit]:
    if options["limit"] is not None:
        return [_configured(options["limit"])]
    if options["rate"] is not None or options["burst"] is not None:
        rate, burst = options["rate"] or rate, options["burst"]
    if rate is None:
        raise CommandError("--rate or --limit: a log needs one")
    try:
        if burst is not None:
            check_units("burst", burst)
        return limits_of(rate, options["algorithm"] or [], burst)
    except ValueError as error:
        raise CommandError(f"--{_option(error)}") from None


def _option(error: ValueError) -> str:
    """Return an error of a policy as one of the options: a quota and a window are given by the rate."""
    field, _, rest = str(error).partition(": ")
    return f"rate: {rest}" if field in ("quota", "window") else str(error)


def _configured(name: str) -> LiveLimit:
    by_name = limiter.current_limits().by_name
    limit = by_name.get(name)
    if limit is None:
        which = "is off" if name in by_name else f"is unknown (have: {', '.join(sorted(by_name))})"
        raise CommandError(f"--limit: {name!r} {which}")
    # What would it do? In shadow mode it would refuse nothing.
    return dataclasses.replace(limit, mode=Mode.ENFORCE)


def _watch(options: dict[str, Any], *, unit: str) -> Watch:
    return functools.partial(progress.bar, unit=unit) if options["verbosity"] else progress.hidden


@contextlib.contextmanager
def _log(name: str, watch: Watch) -> Iterator[AccessLog]:
    try:
        with opened(name, watch) as stream:
            yield AccessLog(stream, log_arrivals.is_client)
    except (OSError, EOFError, zlib.error) as error:
        raise CommandError(f"INPUT: {name} cannot be read to its end: {error}") from error


def _plotter(path: Path) -> Callable[[Result], None]:
    """Return what draws a result, once it is sure that it can: a long run is not to end in vain."""
    try:
        from ratelimit_app.simulation import plot
    except ImportError:
        raise CommandError("--plot: needs matplotlib (pip install 'ratelimit-app[simulate]')") from None
    if path.suffix[1:].lower() not in plot.formats():
        raise CommandError(f"--plot: unknown format of {path} (have: {', '.join(plot.formats())})")
    if not path.parent.is_dir():
        raise CommandError(f"--plot: there is no directory {path.parent}")

    def draw(result: Result) -> None:
        try:
            plot.draw(result.tallies, path)
        except OSError as error:
            raise CommandError(f"--plot: {path} cannot be written: {error}") from error

    try:
        path.open("ab").close()
    except OSError as error:
        raise CommandError(f"--plot: {path} cannot be written: {error}") from error
    return draw


def _leave_unread(output: int) -> None:
    """Let what is still in a buffer, and goes out at the end of the process, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, output)
    os.close(nowhere)


def _first_bad(log: AccessLog) -> str:
    if log.first_bad is None:
        return ""
    number, text = log.first_bad
    return f"; the first is line {number:,}: {text!r}"
