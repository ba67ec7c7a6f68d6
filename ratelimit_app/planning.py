"""From limits and keys to planned calls: which limits are meant, and what each would change."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ratelimit_app import calls, server_clock, snapshots
from ratelimit_app.calls import Call
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit, Snapshot
from ratelimit_app.policy import Policy

LimitLike = str | Policy | LiveLimit
L = TypeVar("L", bound=LimitLike)


def plan(keys: Mapping[L, str], cost: int | None) -> list[Call | Decision]:
    """Plan a call for each limit; where nothing is to be counted, decide it."""
    _check(keys, cost)
    if not conf.enable:
        return [_unlimited(limit, key, cost) for limit, key in keys.items()]
    instant = server_clock.now()
    planned = [
        calls.answer(found, key, cost or found.cost, instant) if found else _unlimited(limit, key, cost)
        for (limit, key), found in zip(keys.items(), _find(keys, instant), strict=True)
    ]
    rows = [each.row for each in planned if isinstance(each, Call)]
    if len(set(rows)) < len(rows):
        raise ValueError("keys: two policies of one name and window share a counter, give them two names")
    return planned


def stored_keys(limit: LimitLike, key: str) -> set[str]:
    """Return what a key of a limit is stored under; nothing where it limits nothing."""
    _check({limit: key}, None)
    if not conf.enable:
        return set()
    instant = server_clock.now()
    (found,) = _find([limit], instant)
    return calls.stored_keys(found, key, instant) if found else set()


def _check(keys: Mapping[L, str], cost: int | None) -> None:
    for key in keys.values():
        if not isinstance(key, str):
            raise ValueError(f"key: a text, got {key!r}")
    if cost is not None and (type(cost) is not int or cost < 1):
        raise ValueError(f"cost: a whole number of units from 1, got {cost!r}")


def _unlimited(limit: LimitLike, key: str, cost: int | None) -> Decision:
    """Allow a call where there is no such limit or it is off."""
    return calls.uncounted(limit if isinstance(limit, str) else limit.name, key, cost or 1)


def _find(limits: Iterable[L], instant: int) -> list[LiveLimit | None]:
    """Look up the limits that are called by name, all of them in one snapshot."""
    limits = list(limits)
    snapshot = snapshots.current(instant) if any(isinstance(limit, str) for limit in limits) else None
    return [_in_the_flesh(limit, snapshot) for limit in limits]


def _in_the_flesh(limit: LimitLike, snapshot: Snapshot | None) -> LiveLimit | None:
    if isinstance(limit, LiveLimit):
        return limit
    if isinstance(limit, Policy):
        return LiveLimit(limit, space=f"{limit.name}@policy")
    return snapshot.find(limit) if snapshot else None
