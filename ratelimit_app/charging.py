"""What a view says of its request when it knows: what it has cost, and whether it has failed.

    charging.set_cost(request, "tokens", usage.total)   # the real cost, instead of what was taken before
    charging.refund(request, "exports")                 # it cost nothing after all
    charging.fail(request)                              # though the answer is a 200, as of a form with errors

It is charged once, when the response is there.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from rest_framework.request import Request

from ratelimit_app import ledger, limiter
from ratelimit_app.calls import Receipt
from ratelimit_app.ledger import Entry, Ledger
from ratelimit_app.models import Charge


def set_cost(request: HttpRequest | Request, limit: str, cost: int) -> None:
    """Say what a request has cost of the limit of that name: whole units from 0, past the quota if need be.

    Raises ``ValueError`` for a cost that is no such number.
    """
    if type(cost) is not int or cost < 0:
        raise ValueError(f"cost: a whole number of units from 0, got {cost!r}")
    ledger.of(request).costs[limit] = cost


def refund(request: HttpRequest | Request, limit: str) -> None:
    """Say that a request has cost nothing of the limit of that name."""
    set_cost(request, limit, 0)


def fail(request: HttpRequest | Request) -> None:
    """Say that a request has failed, whatever the status of its response."""
    ledger.of(request).has_failed = True


def note_failed_login(request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Take Django's word that a log-in has failed: its form answers with a 200."""
    if request is not None:
        fail(request)


def is_open(request: HttpRequest) -> bool:
    """Tell whether the response of a request can change what it has cost."""
    return next(_open(request), None) is not None


def settle(request: HttpRequest, status: int) -> None:
    """Charge what a request has cost, now that the status of its response is known; once."""
    for entry, receipt in _open(request):
        cost = _cost(ledger.of(request), entry, status)
        if cost == entry.decision.cost:
            receipt.is_settled = True
        else:
            limiter.settle(entry.decision, cost)


def _open(request: HttpRequest) -> Iterator[tuple[Entry, Receipt]]:
    made = ledger.of(request)
    for entry in made.entries.values():
        receipt = entry.decision.receipt
        may_change = entry.limit.charge != Charge.BEFORE or entry.limit.name in made.costs
        if may_change and isinstance(receipt, Receipt) and not (receipt.is_settled or receipt.is_held):
            yield entry, receipt


def _cost(made: Ledger, entry: Entry, status: int) -> int:
    limit, taken = entry.limit, entry.decision.cost
    if limit.name in made.costs:
        return made.costs[limit.name]
    if limit.charge not in (Charge.FAILURES, Charge.SUCCESSES):
        return taken
    if any(not decision.allowed for decision in made.decisions):
        return 0  # another limit has refused it: it neither failed nor succeeded
    failed = made.has_failed or status >= HTTPStatus.BAD_REQUEST
    return taken if failed == (limit.charge == Charge.FAILURES) else 0
