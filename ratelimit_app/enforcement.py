"""One request's limits as one decision; each limit counts a request once, wherever it meets it.

An adapter applies limits with ``enforce_...``, and calls ``finish`` when the response is there. The
``a...`` twins are for async callers: they change to a thread only where the database is asked.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch
from rest_framework.request import Request

from ratelimit_app import charging, ending, ledger, limiter, responses
from ratelimit_app.conf import conf
from ratelimit_app.coroutines import in_thread
from ratelimit_app.decision import Decision, combine
from ratelimit_app.exceptions import RateLimited
from ratelimit_app.ledger import Entry
from ratelimit_app.limits import LiveLimit, Snapshot
from ratelimit_app.reporting import name_of, report

#: The name of a limit, or one that a view brings along.
LimitLike = str | LiveLimit
Cost = int | Callable[[HttpRequest], int] | None


def enforce(
    request: HttpRequest | Request, limits: Iterable[LimitLike], cost: Cost = None
) -> Decision | None:
    """Apply limits; return their decision, ``None`` if none of them applies to the request.

    ``cost`` is a number of units or a function of the request that returns one, 0 meaning that the
    request is free; by default it is each limit's own. A name that is not known limits nothing, and
    is logged.
    """
    if not conf.enable:
        return None
    snapshot = limiter.current_limits()
    found = [snapshot.find(limit) if isinstance(limit, str) else limit for limit in limits]
    return _enforce(ledger.plain(request), [limit for limit in found if limit], cost)


def enforce_matching(request: HttpRequest) -> Decision | None:
    """Apply the limits whose path a request is on; return their decision, ``None`` if there is none.

    To be called when Django has found the view: an address that leads to none starts no counter.
    """
    if not conf.enable or _is_exempt(request.resolver_match):
        return None
    return _enforce(request, _matching(limiter.current_limits(), request))


async def aenforce(request: HttpRequest, limits: Sequence[LimitLike], cost: Cost = None) -> Decision | None:
    """Apply limits as ``enforce`` does."""
    if not conf.enable:
        return None
    return await _answer(request, in_thread(enforce)(request, limits, cost))


async def aenforce_matching(request: HttpRequest) -> Decision | None:
    """Apply limits as ``enforce_matching`` does."""
    if not conf.enable or _is_exempt(request.resolver_match):
        return None
    known = limiter.known_limits()
    if known is not None and not _matching(known, request):
        return None
    return await _answer(request, in_thread(enforce_matching)(request))


async def _answer(request: HttpRequest, asked: Awaitable[Decision | None]) -> Decision | None:
    """Await the answer of limits; note if the client leaves before it, so that there will be no view."""
    try:
        return await asked
    except asyncio.CancelledError:
        ledger.of(request).was_kept_out = True
        raise


def finishing(request: HttpRequest | Request, respond: Callable[[], Any]) -> Any:
    """Call what makes the response, and finish the request with it; return the response."""
    request = ledger.plain(request)
    has_middleware = ledger.of(request).has_middleware  # it sees the response as it goes out
    try:
        response = respond()
    except RateLimited as refusal:
        response = responses.refusal(raised(request, refusal), request)
    except BaseException:
        if not has_middleware:
            charging.settle(request, HTTPStatus.INTERNAL_SERVER_ERROR)
        raise
    return finished(request, response) if has_middleware else finish(request, response)


async def afinishing(request: HttpRequest | Request, response: Awaitable[Any]) -> Any:
    """Await the response, and finish as ``finishing`` does."""
    request = ledger.plain(request)
    has_middleware = ledger.of(request).has_middleware
    try:
        made = await response
    except RateLimited as refusal:
        made = await responses.arefusal(raised(request, refusal), request)
    except BaseException as error:
        if not has_middleware:
            if isinstance(error, Exception):  # no client that has left: Django will answer
                ledger.of(request).status = HTTPStatus.INTERNAL_SERVER_ERROR
            await ending.aend(request)
        raise
    return await (afinished if has_middleware else afinish)(request, made)


def finish(request: HttpRequest | Request, response: HttpResponseBase) -> HttpResponseBase:
    """Charge what the request has cost, and show on the response where the caller stands."""
    request = ledger.plain(request)
    charging.settle(request, _status(response))
    return ending.with_stream(request, finished(request, response))


async def afinish(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Finish as ``finish`` does, in a thread if the database has to be asked."""
    dues = charging.due(request, _status(response))
    if any(map(charging.is_change, dues)):
        await in_thread(charging.pay)(request, dues)
    else:
        charging.pay(request, dues)
    return ending.with_stream(request, await afinished(request, response))


def finished(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Show on the response where the caller stands; another's 429 for our refusal becomes ours."""
    refused = refusing(request)
    if refused and responses.is_foreign(response):
        responses.turn_into_refusal(response, refused, request)
    if isinstance(response, HttpResponseBase):  # Django says what is wrong with anything else
        responses.add_fields(response, decisions(request))
    return response


async def afinished(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Finish as ``finished`` does, in a thread if the response has to be made anew."""
    if responses.is_foreign(response) and refusing(request):
        return await sync_to_async(finished)(request, response)
    return finished(request, response)


def _status(response: object) -> int:
    return getattr(response, "status_code", HTTPStatus.OK)


def decisions(request: HttpRequest | Request) -> list[Decision]:
    """Return what the limits have decided about a request so far, one decision for each."""
    return ledger.of(request).decisions


def raised(request: HttpRequest | Request, refusal: RateLimited) -> Decision:
    """Note the decision that a view has raised, so that its limit is shown beside the others; return it."""
    ledger.of(request).raised += refusal.decision.parts
    return refusal.decision


def refusing(request: HttpRequest | Request) -> Decision | None:
    """Return the decision by which a request was refused, ``None`` if it was not."""
    made = decisions(request)
    return combine(made) if any(not decision.allowed for decision in made) else None


def _matching(snapshot: Snapshot, request: HttpRequest) -> list[LiveLimit]:
    path = request.path_info
    return [
        limit
        for limit in snapshot.active
        if limit.path and limit.takes(request.method) and limit.path.search(path)
    ]


def _enforce(request: HttpRequest, limits: Iterable[LiveLimit], cost: Cost = None) -> Decision | None:
    """Decide about the limits that the request has not met yet, all of them at once."""
    keys = {
        limit: key
        for limit in limits
        if limit.takes(request.method) and (key := limit.key(request)) is not None
    }
    entries = ledger.of(request).entries
    new = {limit: key for limit, key in keys.items() if (limit.space, key) not in entries}
    if new and (units := _units(cost, request)) != 0:
        decision = limiter.consume_all(new, cost=units)
        for (limit, key), part in zip(new.items(), decision.parts, strict=True):
            entries[limit.space, key] = Entry(limit, part)
        ending.expect(request)
    met = [entries[limit.space, key] for limit, key in keys.items() if (limit.space, key) in entries]
    if not met:
        return None
    decision = combine([entry.decision for entry in met])
    # A refusal speaks of all limits that the request has met: it waits for what they let through, too.
    return decision if decision.allowed else refusing(request)


def check_cost(cost: Cost) -> None:
    """Raise ``ValueError`` unless a cost is one that ``enforce`` takes."""
    if iscoroutinefunction(cost) or not (cost is None or callable(cost) or _is_units(cost)):
        raise ValueError(f"cost: a whole number of units from 0 or a function of the request, got {cost!r}")


def _units(cost: Cost, request: HttpRequest) -> int | None:
    """Return the cost of a request in units, ``None`` for that of each limit."""
    if cost is None:
        return None
    try:
        units = cost(request) if callable(cost) else cost
        if _is_units(units):
            return units
        report(
            logging.ERROR,
            "The cost %s is %.60r: no whole number of units from 0",
            name_of(cost),
            seen=[units],
        )
    except Exception:
        report(logging.ERROR, "The cost function %s failed", name_of(cost), exc_info=True)
    return None


def _is_units(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_exempt(match: ResolverMatch | None) -> bool:
    if match is None:
        return False
    # The status view shows the limits to those who are refused, too.
    return "ratelimit_app" in match.app_names or any(
        match.view_name == exempt or (exempt.endswith(":") and match.view_name.startswith(exempt))
        for exempt in conf.exempt
    )
