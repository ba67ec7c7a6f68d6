"""What was taken or held, when its call has ended: given back, or charged by what it has really cost.

What cannot be told to the database is not told: its rows expire by themselves.
"""

import contextlib

from ratelimit_app import calls, fallbacks, outages, server_clock
from ratelimit_app.calls import Call, Receipt
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.outages import Unanswered
from ratelimit_app.stores import Advance, Outcome


def leave(decision: Decision) -> None:
    """Give back what an allowed call has only held, of limits of how many run at once; once."""
    for part in decision.parts:
        receipt = part.receipt
        if isinstance(receipt, Receipt) and receipt.is_held and receipt.close():
            give_back(receipt.call.advance, is_local=receipt.is_local)


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
        _charge(receipt, cost)
    if len(opened) < len(receipts):
        raise ValueError("decision: it was settled before")


def undo(decision: Decision) -> None:
    """Give back what a call has taken whose caller was cancelled, and will never know."""
    leave(decision)
    settle(decision, 0)


def take(advance: Advance, *, is_local: bool = False) -> Outcome:
    """Move one counter; raise ``Unanswered`` where that cannot be."""
    if is_local:
        return fallbacks.local.advance(advance)
    return outages.ask(conf.database, lambda store: store.advance(advance), [advance.row])


def give_back(advance: Advance, *, is_local: bool = False) -> None:
    """Take the amount of an advance off the counter that it was taken from, if that can be asked."""
    with contextlib.suppress(Unanswered):
        refund(advance, is_local=is_local)


def refund(advance: Advance, *, is_local: bool = False) -> None:
    """Take the amount of an advance off its counter; raise ``Unanswered`` where that cannot be."""
    if is_local:
        return fallbacks.local.refund(advance)
    return outages.ask(conf.database, lambda store: store.refund(advance), [advance.row])


def forget(stored_key: str) -> None:
    """Delete the counters of a stored key, here and there; raise ``Unanswered`` where that cannot be."""
    fallbacks.local.reset(stored_key)
    outages.ask(conf.database, lambda store: store.reset(stored_key))


def _charge(receipt: Receipt, cost: int) -> None:
    call, now = receipt.call, server_clock.now()
    if cost < call.cost:
        give_back(call.refund_own(call.cost - cost, now), is_local=receipt.is_local)
    elif cost > call.cost:
        with contextlib.suppress(Unanswered):
            _owe(calls.plan(call.limit, call.key, 1, now), cost - call.cost, is_local=receipt.is_local)


def _owe(call: Call, units: int, *, is_local: bool) -> None:
    outcome = take(call.debt(units), is_local=is_local)
    if (longer := calls.keep(call, outcome)) is not None:
        take(longer, is_local=is_local)
