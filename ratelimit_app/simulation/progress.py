"""A bar of how much of a file is read, for somebody who is watching."""

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bar(size: int | None) -> Iterator[Callable[[int], object]]:
    """Show a bar of so many bytes on a terminal, if tqdm is installed; yield what is told of progress."""
    try:
        from tqdm import tqdm
    except ImportError:
        with hidden(size) as told:
            yield told
        return
    # ``disable=None``: not where standard error is no terminal.
    with tqdm(total=size, unit="B", unit_scale=True, leave=False, disable=None, file=sys.stderr) as shown:
        yield shown.update


@contextlib.contextmanager
def hidden(size: int | None) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda count: None
