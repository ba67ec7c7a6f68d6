"""Named scenarios: each is a module in this folder, found by its name.

It has ``RATE`` and ``BURST``, what is tried out where nothing else is asked for, and
``run(limits, rng, watch)``, which tries limits on arrivals that it draws from a random generator, and
returns its tables; one that takes long shows by ``watch`` how far it is.
"""

import importlib
import pkgutil
import random
import typing
from collections.abc import Sequence

from ratelimit_app import windows
from ratelimit_app.conf import conf
from ratelimit_app.limits import LiveLimit
from ratelimit_app.simulation.progress import Watch
from ratelimit_app.simulation.report import Result

#: 2026-06-01T12:00:00Z, in microseconds. Things begin with the first window from then on.
_NOON = 1_780_315_200 * windows.MICROSECONDS


class Scenario(typing.Protocol):
    """What a module in this folder has."""

    RATE: str
    BURST: int | None

    def run(self, limits: Sequence[LiveLimit], rng: random.Random, watch: Watch, /) -> Result: ...


def names() -> list[str]:
    """List the scenarios: the names of the modules in this folder."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def load(name: str) -> Scenario:
    """Return the scenario of that name."""
    return typing.cast(Scenario, importlib.import_module(f"{__name__}.{name}"))


def edge_of(limit: LiveLimit) -> int:
    """Return the instant at which a window of a limit starts, in microseconds."""
    return windows.bounds(limit.policy.window, _NOON - 1, conf.time_zone)[1]


def named(limit: LiveLimit) -> str:
    """Name what is tried: the algorithm, and its burst if that is one of its own."""
    policy = limit.policy
    return policy.algorithm if policy.burst is None else f"{policy.algorithm}, burst {policy.burst:,}"
