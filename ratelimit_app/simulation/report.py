"""What a simulation tells: tables of text, and the tallies that a plot is drawn of."""

import dataclasses
from collections.abc import Sequence

from ratelimit_app.simulation.tallies import Tally
from ratelimit_app.simulation.trials import Trial

Cell = str | int


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings; whole numbers stand on the right, with commas."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The tables of a simulation, and by a title each the tallies behind them."""

    tables: Sequence[Table]
    tallies: Sequence[tuple[str, Tally]]


def text(table: Table) -> str:
    """Write a table, without its title, as lines of text."""
    rows = [list(table.headings), *([_shown(cell) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    on_the_right = [any(isinstance(row[index], int) for row in table.rows) for index in range(len(widths))]
    columns = list(zip(widths, on_the_right, strict=True))
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, (width, right) in zip(row, columns, strict=True)
        ).rstrip()
        for row in rows
    )


def summary(title: str, trials: Sequence[Trial]) -> Table:
    """Make the table of what each trial did."""
    spans = [f"most in {peak.span / 1_000_000:g} s" for peak in trials[0].tally.peaks]
    headings = ["algorithm", "came", "passed", "refused", *spans, "in a window"]
    return Table(title, headings, [[trial.title, *figures(trial.tally)] for trial in trials])


def figures(tally: Tally) -> list[int]:
    """List the figures of a tally in the order of the summary's columns."""
    peaks = [peak.most for peak in tally.peaks]
    return [tally.came, tally.passed, tally.refused, *peaks, tally.window_peak.most]


def refused_keys(trials: Sequence[Trial], number: int) -> list[Table]:
    """Make a table of the keys that were refused most, none if none was."""
    kept = [trial.tally.refused_keys for trial in trials]
    found = {key for refused in kept for key, _ in refused.most_common(number)}
    if not found:
        return []
    ranked = sorted(found, key=lambda key: (-max(refused.of(key) for refused in kept), key))
    rows: list[list[Cell]] = [
        [_printable(key), *(refused.of(key) for refused in kept)] for key in ranked[:number]
    ]
    exact = all(refused.is_exact for refused in kept)
    title = "Refused most" if exact else "Refused most (there are so many keys that some counts are too low)"
    return [Table(title, ["key", *(trial.title for trial in trials)], rows)]


def _shown(cell: Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell


def _printable(key: str) -> str:
    return key if key.isprintable() else repr(key)
