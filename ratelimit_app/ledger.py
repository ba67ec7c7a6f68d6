"""What limits have decided about one request, and what it will have cost."""

import dataclasses

from django.http import HttpRequest
from rest_framework.request import Request

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
    a failure. ``status`` is that of the response, 0 until it is there: from then on, costs are charged when
    told. ``was_kept_out`` says that the client left before its view began. ``raised`` is what a view has
    asked of the limiter itself, and was refused.
    """

    entries: dict[tuple[str, str], Entry] = dataclasses.field(default_factory=dict)
    raised: tuple[Decision, ...] = ()
    costs: dict[str, int] = dataclasses.field(default_factory=dict)
    has_failed: bool = False
    status: int = 0
    was_kept_out: bool = False
    has_middleware: bool = False

    @property
    def decisions(self) -> list[Decision]:
        """What the limits have decided so far, one decision for each."""
        return [*(entry.decision for entry in self.entries.values()), *self.raised]


def of(request: HttpRequest | Request) -> Ledger:
    """Return the ledger of a request, which is begun with the first look at it."""
    ledger: Ledger = plain(request).__dict__.setdefault(_ATTRIBUTE, Ledger())
    return ledger


def plain(request: HttpRequest | Request) -> HttpRequest:
    """Return Django's request, which REST framework wraps in one of its own."""
    return request._request if isinstance(request, Request) else request
