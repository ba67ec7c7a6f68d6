"""A picture of what passed and what was refused, over time."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.dates import date2num
from matplotlib.figure import Figure

from ratelimit_app.simulation.tallies import Tally
from ratelimit_app.windows import to_datetime

#: Pictures below one another; more of them go into further columns.
_IN_A_COLUMN = 4


def formats() -> list[str]:
    """List the endings that a file may have."""
    return sorted(FigureCanvasBase.get_supported_filetypes())


def draw(tallies: Sequence[tuple[str, Tally]], path: Path) -> None:
    """Draw a picture for each tally into one file, in the format of its ending."""
    columns = math.ceil(len(tallies) / _IN_A_COLUMN)
    rows = math.ceil(len(tallies) / columns)
    figure = Figure(figsize=(8 * columns, 2.5 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for index, axes in enumerate(grid.T.flat):
        if index < len(tallies):
            _draw(axes, *tallies[index])
        else:
            axes.set_axis_off()
    figure.savefig(path)


def _draw(axes: Axes, title: str, tally: Tally) -> None:
    line = tally.timeline
    edges = [to_datetime(line.start + index * line.step) for index in range(len(line.passed) + 1)]
    instants = date2num(edges)  # type: ignore[no-untyped-call]
    total = [sum(pair) for pair in zip(line.passed, line.refused, strict=True)]
    axes.stairs(total, instants, fill=True, color="tab:red", label="refused")
    axes.stairs(line.passed, instants, fill=True, color="tab:blue", label="passed")
    axes.xaxis_date()
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_ylabel(f"calls in {line.step / 1_000_000:,.0f} s")
    axes.tick_params(axis="x", labelrotation=15)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right", fontsize="small")
