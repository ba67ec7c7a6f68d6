"""The heart: an algorithm plans a row change, the store applies it, the outcome is judged into a Decision.

decision = limiter.consume("login", "ip:203.0.113.9")
if not decision.allowed: ...  # try again in decision.retry_after seconds
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence

from ratelimit_app import (
    calls,
    fallbacks,
    outages,
    planning,
    pruning,
    receipts,
    server_clock,
    signals,
    snapshots,
    waiting,
)
from ratelimit_app.calls import Call
from ratelimit_app.conf import conf
from ratelimit_app.coroutines import in_thread
from ratelimit_app.decision import Decision, combine
from ratelimit_app.limits import Snapshot
from ratelimit_app.outages import Unanswered
from ratelimit_app.planning import L, LimitLike
from ratelimit_app.stores import Outcome, Row
from ratelimit_app.waiting import Limited

Outcomes = dict[Row, Outcome]

#: Units that were taken or held, given back or charged when that is known; and the time that hosts agree on.
leave = receipts.leave
settle = receipts.settle
now = server_clock.now


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
    pruning.after(decision)
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
    call = planning.plan({limit: key}, cost)[0]
    if isinstance(call, Call):
        advance = call.refund(call.cost)
        try:
            receipts.refund(advance)
        except Unanswered:  # what it was taken from is not known: meanwhile, this process may count
            receipts.refund(advance, is_local=True)


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
    take = in_thread(lambda: consume(limit, key, cost=cost), undo=receipts.undo)
    return await waiting.wait_async(take, max_wait)


def reset(limit: LimitLike, key: str) -> None:
    """Forget what a key has used of a limit."""
    for stored in planning.stored_keys(limit, key):
        with contextlib.suppress(Unanswered):
            receipts.forget(stored)


# For async callers: the same, in a thread, because the database drivers know no other way.
aconsume = in_thread(consume, undo=receipts.undo)
aconsume_all = in_thread(consume_all, undo=receipts.undo)
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
    instant = server_clock.known()
    return None if instant is None else snapshots.known(instant)


def _decide(keys: Mapping[L, str], cost: int | None, ask: Callable[[Sequence[Call]], Outcomes]) -> Decision:
    if not keys:
        raise ValueError("keys: at least one limit")
    planned = planning.plan(keys, cost)
    made = [each for each in planned if isinstance(each, Call)]
    takes = ask is _take and all(each.allowed for each in planned if isinstance(each, Decision))
    try:
        outcomes = (ask if takes else _look)(made)
    except Unanswered as trouble:
        return combine(fallbacks.decide(planned, trouble, takes=takes))
    taken = takes and all(outcomes[call.row].fits for call in made if not call.limit.is_shadow)
    return combine([_judge(each, outcomes, taken) for each in planned])


def _judge(planned: Call | Decision, outcomes: Outcomes, taken: bool) -> Decision:
    if isinstance(planned, Decision):
        return planned
    if planned.row in outcomes:
        return calls.judge(planned, outcomes[planned.row], taken=taken)
    return calls.uncounted(planned.limit.name, planned.key, planned.cost)


def _take(planned: Sequence[Call]) -> Outcomes:
    """Move the rows of all limits, or of none; limits in shadow mode have no say in it."""
    enforced = [call.advance for call in planned if not call.limit.is_shadow]
    shadows = [call for call in planned if call.limit.is_shadow]
    rows = [advance.row for advance in enforced]
    taken = outages.ask(conf.database, lambda store: store.advance_all(enforced), rows) if enforced else []
    outcomes = dict(zip(rows, taken, strict=True))
    with contextlib.suppress(Unanswered):
        if not all(outcome.fits for outcome in taken):
            return outcomes | _look(shadows)
        for call in shadows:
            outcomes[call.row] = receipts.take(call.advance)
    return outcomes


def _look(planned: Sequence[Call]) -> Outcomes:
    advances = [call.advance for call in planned]
    rows = [advance.row for advance in advances]
    return outages.ask(conf.database, lambda store: store.look(advances), rows) if advances else {}
