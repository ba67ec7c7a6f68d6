"""What a visitor is sent: the refusal, and the fields that every limited response carries."""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse
from django.utils.cache import patch_vary_headers
from django.utils.module_loading import import_string

from ratelimit_app import headers
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision
from ratelimit_app.reporting import report

R = TypeVar("R", bound=HttpResponse)

#: What says something of the body that was there before.
_OF_THE_BODY = ("Content-Encoding", "Content-Language", "ETag", "Last-Modified")

#: Marks a refusal that this module has made.
_OURS = "_ratelimit_refusal"

_DOCUMENT_TYPES = ("application/problem+json", "application/json")
_PAGE_TYPE = "text/html"
_PROBLEM_TYPES = "https://iana.org/assignments/http-problem-types#"


def status(decision: Decision) -> HTTPStatus:
    """Return the status of a refusal: 503 where there was only no asking the counters."""
    return HTTPStatus.SERVICE_UNAVAILABLE if decision.unavailable else HTTPStatus.TOO_MANY_REQUESTS


def refusal(decision: Decision, request: HttpRequest | None = None) -> HttpResponse:
    """Return the 429 for a decision: what ``RATELIMIT_REFUSAL`` makes of it, or the app's own.

    That is a page (the template ``429.html``) for a browser and a problem document for all others. A
    503 is always the document.
    """
    if request is None or decision.unavailable:
        return complete(_document(decision), decision)
    request = getattr(request, "_request", request)  # REST framework wraps Django's
    own = _own(conf.refusal, request, decision) if conf.refusal else None
    return complete(_negotiated(decision, request) if own is None else own, decision)


async def arefusal(decision: Decision, request: HttpRequest) -> HttpResponse:
    """Return the 429 as ``refusal`` does, in a thread only where a project's own code makes it."""
    if not decision.unavailable and (conf.refusal or _wants_page(request)):
        return await sync_to_async(refusal)(decision, request)
    return refusal(decision, request)


def problem(decision: Decision) -> dict[str, object]:
    """Return the problem details of a refusal (RFC 9457), which say whose quota nowhere."""
    wait = decision.retry_after_seconds
    kind, title = ("temporary-reduced-capacity", "Temporary reduced capacity")
    if not decision.unavailable:
        kind, title = ("quota-exceeded", "Quota exceeded")
    body: dict[str, object] = {
        "type": _PROBLEM_TYPES + kind,
        "title": title,
        "status": int(status(decision)),
        "detail": _detail(decision, wait),
        "violated-policies": [part.limit for part in decision.parts if not part.allowed],
    }
    return body if wait is None else body | {"retry_after": wait}


def is_foreign(response: object) -> bool:
    """Tell whether a response is a 429 that this module has not made."""
    return getattr(response, "status_code", None) == HTTPStatus.TOO_MANY_REQUESTS and not hasattr(
        response, _OURS
    )


def turn_into_refusal(response: HttpResponseBase, decision: Decision, request: HttpRequest) -> None:
    """Make a 429 from elsewhere the one that all entry points send; its other fields stay.

    So does a page, unless the project has one of its own: the browsable API shows a refusal itself.
    """
    refused = refusal(decision, request)
    has_page = _is_page(response) and _is_page(refused) and not conf.refusal
    if isinstance(response, HttpResponse) and not has_page:
        _replace_body(response, refused.content)
        response.status_code = refused.status_code
    else:
        del refused["Content-Type"]
    for field, value in refused.items():
        if field == "Vary":
            patch_vary_headers(response, value.split(", "))
        else:
            response[field] = value
    response.cookies.update(refused.cookies)
    _mark(response, decision)


def add_fields(response: HttpResponseBase, decisions: Sequence[Decision]) -> None:
    """Put the state of the limits on a response, in the formats of ``RATELIMIT_HEADERS``."""
    shown = [decision for decision in decisions if not decision.shadow]
    for name in conf.headers:
        for field, value in headers.load(name).fields(shown).items():
            response[field] = value


def complete(response: R, decision: Decision) -> R:
    """Add what every refusal carries, whoever made it."""
    _mark(response, decision)
    response.setdefault("Cache-Control", "no-store")
    wait = decision.retry_after_seconds
    if wait is not None:
        response.setdefault("Retry-After", str(wait))
    add_fields(response, decision.parts)
    return response


def _mark(response: HttpResponseBase, decision: Decision) -> None:
    setattr(response, _OURS, True)
    if decision.unavailable:
        # Once a minute is told what is wrong. Django would tell of each response with a 5xx.
        response._has_been_logged = True  # type: ignore[attr-defined]


def _replace_body(response: HttpResponse, content: bytes) -> None:
    response.content = content
    if "Content-Length" in response:
        response["Content-Length"] = str(len(content))
    for field in _OF_THE_BODY:
        del response[field]


def _is_page(response: HttpResponseBase) -> bool:
    # REST framework says late what it will have rendered.
    kind = getattr(response, "accepted_media_type", None) or response.get("Content-Type", "")
    return str(kind).startswith(_PAGE_TYPE)


def _negotiated(decision: Decision, request: HttpRequest) -> HttpResponse:
    page = _page(decision, request) if _wants_page(request) else None
    response = _document(decision) if page is None else page
    patch_vary_headers(response, ["Accept"])
    return response


def _document(decision: Decision) -> HttpResponse:
    return JsonResponse(problem(decision), status=status(decision), content_type="application/problem+json")


def _wants_page(request: HttpRequest) -> bool:
    return request.get_preferred_type([*_DOCUMENT_TYPES, _PAGE_TYPE]) == _PAGE_TYPE


def _page(decision: Decision, request: HttpRequest) -> HttpResponse | None:
    """Render the template; where that fails, it is reported, and the document goes out."""
    context = {"decision": decision, "detail": _detail(decision, decision.retry_after_seconds)}
    try:
        return render(request, "429.html", context, status=status(decision))
    except Exception:
        report(logging.ERROR, "The template 429.html cannot be rendered", exc_info=True)
        return None


def _own(path: str, request: HttpRequest, decision: Decision) -> HttpResponse | None:
    """Let the project answer; where that fails, it is reported, and the app's own answer goes out."""
    try:
        make = import_string(path)
        response = (async_to_sync(make) if iscoroutinefunction(make) else make)(request, decision)
        if isinstance(response, SimpleTemplateResponse):
            response.render()
        if isinstance(response, HttpResponse):
            return response
        report(logging.ERROR, "RATELIMIT_REFUSAL: %s returned a %s", path, type(response).__name__)
    except Exception:
        report(logging.ERROR, "RATELIMIT_REFUSAL: %s failed", path, exc_info=True)
    return None


def _detail(decision: Decision, wait: int | None) -> str:
    if decision.unavailable:
        return f"Requests cannot be counted at the moment. Try again in {wait} second{_s(wait)}."
    if wait is None and decision.cost <= (decision.quota or 0):
        return "Too many requests. Trying again does not help."
    if wait is None:
        return "This request costs more than the whole quota: trying again does not help."
    return f"Too many requests. Try again in {wait} second{_s(wait)}."


def _s(number: int | None) -> str:
    return "" if number == 1 else "s"
