"""What limits have decided about one request, and what it will have cost."""

import dataclasses
from collections.abc import Callable

from django.http import HttpRequest
from rest_framework.request import Request

from ratelimit_app.calls import Receipt
from ratelimit_app.decision import Decision
from ratelimit_app.limits import LiveLimit

_ATTRIBUTE = "_ratelimit_ledger"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A limit that the request has met, and what it said."""

    limit: LiveLimit
    decision: Decision


@dataclasses.dataclass(slots=True)
class Ledger:
    """One request's entries, by the counter that each is about.

    ``costs`` are what views have told, by the name of a limit, and ``has_failed`` that they have called it
    a failure. ``is_answered`` says that the response was there: from then on, costs are charged when told.
    ``raised`` is what a view has asked of the limiter itself, and was refused.
    """

    entries: dict[tuple[str, str], Entry] = dataclasses.field(default_factory=dict)
    raised: tuple[Decision, ...] = ()
    costs: dict[str, int] = dataclasses.field(default_factory=dict)
    has_failed: bool = False
    is_answered: bool = False
    has_middleware: bool = False
    held: list[Decision] = dataclasses.field(default_factory=list)

    @property
    def decisions(self) -> list[Decision]:
        """What the limits have decided so far, one decision for each."""
        return [*(entry.decision for entry in self.entries.values()), *self.raised]


def of(request: HttpRequest | Request) -> Ledger:
    """Return the ledger of a request, which is begun with the first look at it."""
    ledger: Ledger = plain(request).__dict__.setdefault(_ATTRIBUTE, Ledger())
    return ledger


def at_close(request: HttpRequest, decision: Decision, leave: Callable[[Decision], None]) -> None:
    """Leave what a decision holds when the response of its request is closed, whichever that will be."""
    if not any(isinstance(part.receipt, Receipt) and part.receipt.is_held for part in decision.parts):
        return
    of(request).held.append(decision)
    close = request.close

    def close_and_leave() -> None:
        try:
            close()
        finally:
            leave(decision)

    # Django closes the request with the response that goes out, at the end of its stream.
    request.close = close_and_leave  # type: ignore[method-assign]


def plain(request: HttpRequest | Request) -> HttpRequest:
    """Return Django's request, which REST framework wraps in one of its own."""
    return request._request if isinstance(request, Request) else request
