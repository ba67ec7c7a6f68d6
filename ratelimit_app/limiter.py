"""The heart: an algorithm plans a row change, the store applies it, the outcome is judged into a Decision.

decision = limiter.consume("login", "ip:203.0.113.9")
if not decision.allowed: ...  # try again in decision.retry_after seconds
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from django.db import DatabaseError, Error

from ratelimit_app import calls, clock, signals, snapshots, waiting
from ratelimit_app.calls import Call, Receipt
from ratelimit_app.conf import conf
from ratelimit_app.coroutines import in_thread
from ratelimit_app.decision import Decision, combine
from ratelimit_app.limits import LiveLimit, Snapshot
from ratelimit_app.policy import Policy
from ratelimit_app.reporting import report
from ratelimit_app.stores import Advance, Outcome, Row, Store, store_for
from ratelimit_app.waiting import Limited

LimitLike = str | Policy | LiveLimit
L = TypeVar("L", bound=LimitLike)
T = TypeVar("T")

Outcomes = dict[Row, Outcome]


def consume(limit: LimitLike, key: str, *, cost: int | None = None) -> Decision:
    """Take units of a limit for a key, if they are to be had.

    ``limit`` is the name of a limit or a ``Policy``; ``key`` is any text that says who is limited;
    ``cost`` is a whole number of units from 1 (by default the limit's own, which is 1 for a policy).
    A refused call takes nothing, unless the limit counts refused calls too. A name that is not known
    limits nothing. Raises ``ValueError`` for a key that is no text and a cost that is no such number.
    """
    return consume_all({limit: key}, cost=cost)


def consume_all(keys: Mapping[L, str], *, cost: int | None = None) -> Decision:
    """Take units of several limits at once: of all of them, or of none if one of them refuses.

    ``keys`` says for each limit who is limited. The tightest limit speaks for all of them;
    ``decisions`` holds what each of them says. Raises ``ValueError`` as ``consume`` does, for no
    limit at all, and for two policies that would share a counter.
    """
    decision = _decide(keys, cost, _take)
    for part in decision.parts:
        if part.over_quota:
            signals.over_quota.send_robust(sender=part.limit, decision=part)
    return decision


def peek(limit: LimitLike, key: str, *, cost: int | None = None) -> Decision:
    """Tell whether ``consume`` would be allowed now, and what is left. Takes nothing and writes nothing."""
    return peek_all({limit: key}, cost=cost)


def peek_all(keys: Mapping[L, str], *, cost: int | None = None) -> Decision:
    """Tell what ``consume_all`` would answer now. Takes nothing and writes nothing.

    One query reads all counters, and for each sliding log one or two more its entries.
    """
    return _decide(keys, cost, _look)


def refund(limit: LimitLike, key: str, *, cost: int | None = None) -> None:
    """Give units back to the window that is running, until none are used.

    What is only held is given back by ``leave``, or the end of the block.

    A key that an override exempts or blocks takes nothing, and gets nothing back.
    """
    call = _plan({limit: key}, cost)[0]
    if isinstance(call, Call):
        refund = call.refund(call.cost)
        _ask(lambda store: store.refund(refund))


def limited(limit: LimitLike, key: str, *, cost: int | None = None) -> Limited:
    """Run a block only where a limit allows it, as in ``with limiter.limited("exports", key): ...``.

    Also ``async with``. Raises ``RateLimited``, which carries the decision, where the limit refuses;
    in a view that becomes the 429.
    """
    return Limited(lambda: consume(limit, key, cost=cost), leave)


def wait(limit: LimitLike, key: str, *, max_wait: float, cost: int | None = None) -> Decision:
    """Take units when they are to be had, and sleep until then: for at most ``max_wait`` seconds in all.

    It sleeps for exactly as long as the limit says. Where that would be longer than what is left of
    ``max_wait``, or never helps, the refusal is returned at once. What others hold, of a limit of how many
    run at once, may come back at any moment: for that it looks every half second. Raises ``ValueError``
    for a ``max_wait`` that is no number from 0, and as ``consume`` does.
    """
    return waiting.wait(lambda: consume(limit, key, cost=cost), max_wait)


async def wait_async(limit: LimitLike, key: str, *, max_wait: float, cost: int | None = None) -> Decision:
    """Wait as ``wait`` does, and let others go on meanwhile."""
    take = in_thread(lambda: consume(limit, key, cost=cost), undo=_undo)
    return await waiting.wait_async(take, max_wait)


def leave(decision: Decision) -> None:
    """Give back what an allowed call has only held, of limits of how many run at once; once."""
    for part in decision.parts:
        receipt = part.receipt
        if isinstance(receipt, Receipt) and receipt.is_held and receipt.close():
            _give_back(receipt.call)


def _give_back(call: Call) -> None:
    _ask(lambda store: store.refund(call.advance))


def settle(decision: Decision, cost: int) -> None:
    """Charge what an allowed call has really cost, when that is known: once, for each of its limits.

    What was too much is given back to the window that it was taken from, all of it for a cost of 0.
    What is missing is taken now, past the quota if need be: it is a debt that later calls wait for.
    Raises ``ValueError`` for a cost that is no whole number from 0, and for a decision that was settled
    before.
    """
    calls.check_final_cost(cost)
    receipts = [part.receipt for part in decision.parts if isinstance(part.receipt, Receipt)]
    receipts = [receipt for receipt in receipts if not receipt.is_held]  # what is held, its block gives back
    opened = [receipt for receipt in receipts if receipt.close()]
    for receipt in opened:
        _charge(receipt.call, cost)
    if len(opened) < len(receipts):
        raise ValueError("decision: it was settled before")


def _undo(decision: Decision) -> None:
    """Give back what a call has taken whose caller was cancelled, and will never know."""
    leave(decision)
    settle(decision, 0)


def reset(limit: LimitLike, key: str) -> None:
    """Forget what a key has used of a limit."""
    _check({limit: key}, None)
    if not conf.enable:
        return
    instant = now()
    if found := _find([limit], instant)[0]:
        for stored in calls.stored_keys(found, key, instant):
            _reset(stored)


# For async callers: the same, in a thread, because the database drivers know no other way.
aconsume = in_thread(consume, undo=_undo)
aconsume_all = in_thread(consume_all, undo=_undo)
apeek = in_thread(peek)
apeek_all = in_thread(peek_all)
arefund = in_thread(refund)
aleave = in_thread(leave)
asettle = in_thread(settle)
areset = in_thread(reset)


def current_limits() -> Snapshot:
    """Return the limits that are in force now."""
    return snapshots.current(now())


def known_limits() -> Snapshot | None:
    """Return the limits that are in force now, ``None`` where the database would have to be asked."""
    if _follows_server() and clock.is_due():
        return None
    return snapshots.known(clock.now())


def now() -> int:
    """Return the instant in microseconds since the epoch, by the clock that all hosts agree on."""
    if _follows_server():
        _ask(lambda store: clock.follow(store.server_time))
    else:
        clock.follow_local()
    return clock.now()


def _follows_server() -> bool:
    return conf.clock == "database" and store_for(conf.database).has_clock


def _charge(call: Call, cost: int) -> None:
    if cost < call.cost:
        refund = call.refund_own(call.cost - cost, now())
        _ask(lambda store: store.refund(refund))
    elif cost > call.cost:
        _owe(calls.plan(call.limit, call.key, 1, now()), cost - call.cost)


def _owe(call: Call, units: int) -> None:
    debt = call.debt(units)
    outcome = _take_one(debt)
    if outcome and (longer := calls.keep(call, outcome)) is not None:
        _take_one(longer)


def _decide(keys: Mapping[L, str], cost: int | None, ask: Callable[[Sequence[Call]], Outcomes]) -> Decision:
    if not keys:
        raise ValueError("keys: at least one limit")
    planned = _plan(keys, cost)
    calls_made = [each for each in planned if isinstance(each, Call)]
    is_blocked = any(not each.allowed for each in planned if isinstance(each, Decision))
    outcomes = (_look if is_blocked else ask)(calls_made)
    taken = ask is _take and not is_blocked and _all_fit(calls_made, outcomes)
    return combine([_judge(each, outcomes, taken) for each in planned])


def _all_fit(planned: Sequence[Call], outcomes: Outcomes) -> bool:
    enforced = [call for call in planned if not call.limit.is_shadow]
    return all(outcomes[call.row].fits for call in enforced if call.row in outcomes)


def _judge(planned: Call | Decision, outcomes: Outcomes, taken: bool) -> Decision:
    if isinstance(planned, Decision):
        return planned
    if planned.row in outcomes:
        return calls.judge(planned, outcomes[planned.row], taken=taken)
    return calls.uncounted(planned.limit.name, planned.key, planned.cost)


def _plan(keys: Mapping[L, str], cost: int | None) -> list[Call | Decision]:
    """Plan a call for each limit; where nothing is to be counted, decide it."""
    _check(keys, cost)
    if not conf.enable:
        return [_unlimited(limit, key, cost) for limit, key in keys.items()]
    instant = now()
    planned = [
        calls.answer(found, key, cost or found.cost, instant) if found else _unlimited(limit, key, cost)
        for (limit, key), found in zip(keys.items(), _find(keys, instant), strict=True)
    ]
    rows = [each.row for each in planned if isinstance(each, Call)]
    if len(set(rows)) < len(rows):
        raise ValueError("keys: two policies of one name and window share a counter, give them two names")
    return planned


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


def _take(planned: Sequence[Call]) -> Outcomes:
    """Move the rows of all limits, or of none; limits in shadow mode have no say in it."""
    enforced = [call.advance for call in planned if not call.limit.is_shadow]
    shadows = [call for call in planned if call.limit.is_shadow]
    taken = _ask(lambda store: store.advance_all(enforced))
    if taken is None:
        return {}
    outcomes = dict(zip([advance.row for advance in enforced], taken, strict=True))
    if not all(outcome.fits for outcome in taken):
        return outcomes | _look(shadows)
    for call in shadows:
        if outcome := _take_one(call.advance):
            outcomes[call.row] = outcome
    return outcomes


def _take_one(advance: Advance) -> Outcome | None:
    return _ask(lambda store: store.advance(advance))


def _look(planned: Sequence[Call]) -> Outcomes:
    return _ask(lambda store: store.look([call.advance for call in planned])) or {}


def _reset(stored_key: str) -> None:
    _ask(lambda store: store.reset(stored_key))


def _ask(question: Callable[[Store], T]) -> T | None:
    """Put a question to the store; where the database does not answer, report it and return ``None``.

    A limiter must not stop the site, whatever error the database has: a call that cannot be counted
    is allowed.
    """
    store = store_for(conf.database)
    try:
        return question(store)
    except Error as error:
        busy = isinstance(error, DatabaseError) and store.is_contention(error)
        report(
            logging.ERROR,
            "The counters on the database %r %s: calls are allowed uncounted",
            conf.database,
            "could not be locked in time" if busy else "do not answer",
            exc_info=True,
        )
        return None
