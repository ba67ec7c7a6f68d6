"""Formats in which a response carries its limits: each is a module with a function ``fields``."""

import functools
import importlib
import pkgutil
import typing
from collections.abc import Sequence

from ratelimit_app.decision import Decision


class HeaderFormat(typing.Protocol):
    """What a module in this folder has: decisions of single limits to header fields."""

    def fields(self, decisions: Sequence[Decision], /) -> dict[str, str]: ...


def names() -> list[str]:
    """List the formats: the names of the modules in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@functools.cache
def load(name: str) -> HeaderFormat:
    """Return the format of that name; raise ``ValueError`` where there is none."""
    if name not in names():
        raise ValueError(f"unknown format {name!r} (have: {', '.join(names())})")
    return typing.cast(HeaderFormat, importlib.import_module(f"{__name__}.{name}"))
