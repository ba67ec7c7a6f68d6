"""A bar of how much of a file is read, or of a scenario is done, for somebody who is watching."""

import contextlib
import sys
from collections.abc import Callable, Iterator

#: What is told how many more are done.
Told = Callable[[int], object]

#: What is given how many there are, if that is known, and makes what is told.
Watch = Callable[[int | None], contextlib.AbstractContextManager[Told]]


@contextlib.contextmanager
def bar(size: int | None, *, unit: str = "B") -> Iterator[Told]:
    """Show a bar of so many units on a terminal, if tqdm is installed; yield what is told of progress."""
    try:
        from tqdm import tqdm
    except ImportError:
        with hidden(size) as told:
            yield told
        return
    # ``disable=None``: not where standard error is no terminal.
    with tqdm(total=size, unit=unit, unit_scale=True, leave=False, disable=None, file=sys.stderr) as shown:
        yield shown.update


@contextlib.contextmanager
def hidden(size: int | None) -> Iterator[Told]:
    """Show nothing."""
    yield lambda count: None
