"""What a view says of its request when it knows: what it has cost, and whether it has failed.

    charging.set_cost(request, "tokens", usage.total)   # the real cost, instead of what was taken before
    charging.refund(request, "exports")                 # it cost nothing after all
    charging.fail(request)                              # though the answer is a 200, as of a form with errors

It is charged once: when the response is there or, where a response that is streamed tells its cost later,
when it is told.
"""

import dataclasses
import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from rest_framework.request import Request

from ratelimit_app import ledger, limiter
from ratelimit_app.calls import Receipt, check_final_cost
from ratelimit_app.coroutines import in_thread
from ratelimit_app.decision import Decision
from ratelimit_app.ledger import Entry, Ledger
from ratelimit_app.models import Charge
from ratelimit_app.reporting import report

#: An entry, and what it has cost instead of what was taken.
Due = tuple[Entry, int]


def set_cost(request: HttpRequest | Request, limit: str, cost: int) -> None:
    """Say what a request has cost of the limit of that name: whole units from 0, past the quota if need be.

    The last word before the response counts; after it, the first. A limit that the request has not met is
    not charged. Raises ``ValueError`` for a cost that is no such number.
    """
    check_final_cost(cost)
    made = ledger.of(request)
    made.costs[limit] = cost
    if made.status:
        pay(ledger.plain(request), _told(made))


def refund(request: HttpRequest | Request, limit: str) -> None:
    """Say that a request has cost nothing of the limit of that name."""
    set_cost(request, limit, 0)


# For async views and streams, which may not wait for the database themselves.
aset_cost = in_thread(set_cost)
arefund = in_thread(refund)


def fail(request: HttpRequest | Request) -> None:
    """Say that a request has failed, whatever the status of its response."""
    ledger.of(request).has_failed = True


def note_failed_login(request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Take Django's word that a log-in has failed: its form answers with a 200."""
    if request is not None:
        fail(request)


def settle(request: HttpRequest, status: int) -> None:
    """Charge what a request has cost, by the status of its response: 0 where there will be none."""
    pay(request, due(request, status))


def due(request: HttpRequest, status: int) -> list[Due]:
    """Return what is still to be charged, given the status of the response; asks no database."""
    made = ledger.of(request)
    made.status = status
    _report_unknown(made)
    return [*_told(made), *_found_out(made, status)]


def pay(request: HttpRequest, dues: Sequence[Due]) -> None:
    """Charge what is due, and let the response show what is left after it."""
    for entry, cost in dues:
        limiter.settle(entry.decision, cost)
    if changed := {entry.limit: entry for entry, cost in dues if is_change((entry, cost))}:
        left = limiter.peek_all({limit: entry.decision.key for limit, entry in changed.items()})
        for (limit, entry), part in zip(changed.items(), left.parts, strict=True):
            entries = ledger.of(request).entries
            entries[limit.space, part.key] = Entry(limit, _shown(entry.decision, part))


def is_change(due: Due) -> bool:
    """Tell whether something has cost another amount than was taken: only then is the database asked."""
    entry, cost = due
    return cost != entry.decision.cost


def is_pending(entry: Entry) -> bool:
    """Tell whether a limit waits for the end of the request: to be given back, or charged by how it ends."""
    receipt = entry.decision.receipt
    if not isinstance(receipt, Receipt) or receipt.is_settled:
        return False
    return receipt.is_held or entry.limit.charge != Charge.BEFORE


def _told(made: Ledger) -> list[Due]:
    return [
        (entry, made.costs[entry.limit.name])
        for entry in made.entries.values()
        if entry.limit.name in made.costs and _is_open(entry)
    ]


def _found_out(made: Ledger, status: int) -> list[Due]:
    """Find what nobody has told the cost of: it depends on how the request has ended."""
    refused = made.was_kept_out or status == HTTPStatus.TOO_MANY_REQUESTS
    refused = refused or any(not each.allowed for each in made.decisions)
    failed = made.has_failed or status >= HTTPStatus.BAD_REQUEST
    # Whoever leaves before there is a response would have for free what is given back.
    costly: dict[str, bool] = {
        Charge.FAILURES: (failed or not status) and not refused,
        Charge.SUCCESSES: not failed and not refused,
    }
    if refused:
        costly[Charge.AFTER] = False  # a limit that came later has kept it from what it would have cost
    return [
        (entry, entry.decision.cost if costly[entry.limit.charge] else 0)
        for entry in made.entries.values()
        if entry.limit.charge in costly and entry.limit.name not in made.costs and _is_open(entry)
    ]


def _is_open(entry: Entry) -> bool:
    receipt = entry.decision.receipt
    return isinstance(receipt, Receipt) and not (receipt.is_settled or receipt.is_held)


def _shown(before: Decision, now: Decision) -> Decision:
    """Return what a request was told, with the figures of now; as before where there are none."""
    if now.policy is None:
        return before
    return dataclasses.replace(
        now,
        allowed=before.allowed,
        cost=before.cost,
        retry_after=before.retry_after,
        over_quota=before.over_quota,
        receipt=before.receipt,
    )


def _report_unknown(made: Ledger) -> None:
    met = {entry.limit.name for entry in made.entries.values()}
    known = limiter.known_limits() if made.costs.keys() - met else None
    for name in made.costs.keys() - met:
        if known is not None and name not in known.by_name:
            report(logging.WARNING, "There is no limit %.100r that a request could have a cost of", name)
