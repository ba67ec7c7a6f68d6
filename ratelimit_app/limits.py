"""Limits in the form in which requests meet them, made of the rows and of ``RATELIMIT_LIMITS``."""

import dataclasses
import functools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from ratelimit_app import drf_rates, keys, overrides
from ratelimit_app.conf import conf
from ratelimit_app.models import Charge, Limit, LimitOverride, Mode
from ratelimit_app.overrides import Overrides
from ratelimit_app.policy import Policy
from ratelimit_app.reporting import report

M = TypeVar("M", bound=models.Model)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LiveLimit:
    """A limit in the form in which requests meet it; one object per limit and snapshot.

    ``space`` sets its counters apart: a row that is deleted and made anew does not inherit them.
    """

    policy: Policy
    space: str
    key: keys.KeyFunction = keys.ip
    path: re.Pattern[str] | None = None
    methods: frozenset[str] = frozenset()
    mode: str = Mode.ENFORCE
    count_denied: bool = False
    cost: int = 1
    charge: str = Charge.BEFORE
    on_error: str = ""
    overrides: Overrides = overrides.NONE

    @property
    def name(self) -> str:
        return self.policy.name

    @property
    def is_shadow(self) -> bool:
        return self.mode == Mode.SHADOW

    def takes(self, method: str | None) -> bool:
        """Tell whether it counts requests of a method: HEAD is GET, and OPTIONS has to be named."""
        method = "GET" if method == "HEAD" else method
        return method in self.methods if self.methods else method != "OPTIONS"


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """All limits of one moment. ``None`` in ``by_name`` is one that is off: known, limiting nothing."""

    by_name: Mapping[str, LiveLimit | None]

    @property
    def active(self) -> Iterator[LiveLimit]:
        """The limits that are not off."""
        return (limit for limit in self.by_name.values() if limit is not None)

    def find(self, name: str) -> LiveLimit | None:
        """Return a limit by its name, ``None`` if it is off or, which is reported, there is none."""
        if name not in self.by_name:
            report(logging.WARNING, "There is no limit %.100r: it limits nothing", name)
        return self.by_name.get(name)


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """What the tables hold: the limits, and their overrides."""

    limits: Sequence[Limit]
    overrides: Sequence[LimitOverride]


def read(connection: BaseDatabaseWrapper) -> Rows:
    """Read the rows of all limits by a connection."""
    rows = list(_rows(Limit.objects.all(), connection))
    return Rows(rows, list(_rows(LimitOverride.objects.order_by(), connection)) if rows else [])


def load(rows: Rows) -> Snapshot:
    """Make all limits: those in code, and the rows, which win by name.

    One that is not valid is reported and left out, as if it were not there; so is an override.
    """
    by_name = dict(load_declared().by_name)
    overriding = _by_limit(rows.overrides)
    for row in rows.limits:
        _add(by_name, row.name, functools.partial(live, row, overriding.get(row.pk, ())))
    return Snapshot(by_name)


def load_declared() -> Snapshot:
    """Read the limits in code alone."""
    by_name: dict[str, LiveLimit | None] = {}
    for name, spec in in_code().items():
        _add(by_name, name, functools.partial(_live_declared, name, spec))
    return Snapshot(by_name)


def in_code() -> dict[str, object]:
    """Return what declares each limit in code, by name, valid or not.

    An entry of ``RATELIMIT_LIMITS`` wins over a throttle rate of Django REST framework.
    """
    own = conf.limits if isinstance(conf.limits, Mapping) else {}  # a system check speaks of what is none
    return {**drf_rates.specs(), **own}


def live(row: Limit, overriding: Sequence[LimitOverride] = ()) -> LiveLimit | None:
    """Turn a row into its live form, ``None`` if it is off; raise ``ValueError`` if it is not valid.

    Of its overrides those that are not valid are reported and left out.
    """
    if row.mode == Mode.OFF:
        return None
    if row.mode not in Mode.values:
        raise ValueError(f"mode: unknown {row.mode!r} (have: {', '.join(Mode.values)})")
    return LiveLimit(
        policy=row.policy(),
        space=f"{row.name}@{row.pk or 'code'}",
        key=keys.load(row.key),
        path=row.pattern(),
        methods=row.method_set(),
        mode=row.mode,
        count_denied=row.checked_count_denied(),
        cost=row.checked_cost(),
        charge=row.checked_charge(),
        on_error=row.checked_on_error(),
        overrides=_live_overrides(row, overriding) if overriding else overrides.NONE,
    )


def declared(name: str, spec: object) -> Limit:
    """Make an unsaved row of an entry of ``RATELIMIT_LIMITS``: a rate, or a mapping of fields.

    ``None`` declares a limit that is off. Raises ``ValueError`` for anything else.
    """
    if spec is None:
        return Limit(name=name, rate="1/s", mode=Mode.OFF)
    if isinstance(spec, str):
        return Limit(name=name, rate=spec)
    if not isinstance(spec, Mapping):
        raise ValueError(f"a rate, a mapping of fields or None, got {spec!r}")
    fields = {field.name for field in Limit._meta.fields} - {"id", "name"}
    if unknown := set(spec) - fields:
        raise ValueError(
            f"unknown {', '.join(sorted(map(str, unknown)))} (have: {', '.join(sorted(fields))})"
        )
    values = dict(spec)
    if isinstance(values.get("methods"), list | tuple | set | frozenset):
        values["methods"] = ", ".join(values["methods"])
    return Limit(name=name, **values)


def _rows(query_set: models.QuerySet[M], connection: BaseDatabaseWrapper) -> Iterator[M]:
    # A query set knows aliases; the connection may be a second one to the same database.
    compiler = query_set.query.get_compiler(connection=connection)
    columns = [field.attname for field in query_set.model._meta.concrete_fields]
    for values in compiler.results_iter():
        yield query_set.model.from_db(connection.alias, columns, values)


def _by_limit(rows: Iterable[LimitOverride]) -> dict[int, list[LimitOverride]]:
    found: dict[int, list[LimitOverride]] = {}
    for row in rows:
        found.setdefault(row.limit_id, []).append(row)
    return found


def _live_overrides(limit: Limit, rows: Iterable[LimitOverride]) -> Overrides:
    placed = []
    for row in rows:
        try:
            placed.append((overrides.place(row.key), row.live(limit)))
        except ValueError as error:
            report(logging.ERROR, "The override of %r for %r is ignored: %s", limit.name, row.key, error)
    return Overrides(placed)


def _live_declared(name: str, spec: object) -> LiveLimit | None:
    return live(declared(name, spec))


def _add(by_name: dict[str, LiveLimit | None], name: str, make: Callable[[], LiveLimit | None]) -> None:
    try:
        by_name[name] = make()
    except (ValueError, TypeError) as error:
        report(logging.ERROR, "The limit %r is ignored: %s", name, error)
