"""What a visitor is sent: the refusal, and the fields that every limited response carries."""

from collections.abc import Sequence

from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from ratelimit_app import headers
from ratelimit_app.conf import conf
from ratelimit_app.decision import Decision

STATUS = 429

#: What says something of the body that was there before.
_OF_THE_BODY = ("Content-Encoding", "Content-Language", "ETag", "Last-Modified")
PROBLEM_TYPE = "https://iana.org/assignments/http-problem-types#quota-exceeded"


def refusal(decision: Decision) -> JsonResponse:
    """Return the 429 for a decision: problem details (RFC 9457) that say whose quota nowhere."""
    wait = decision.retry_after_seconds
    body: dict[str, object] = {
        "type": PROBLEM_TYPE,
        "title": "Quota exceeded",
        "status": STATUS,
        "detail": _detail(wait),
        "violated-policies": [part.limit for part in decision.parts if not part.allowed],
    }
    if wait is not None:
        body["retry_after"] = wait
    response = JsonResponse(body, status=STATUS, content_type="application/problem+json")
    response["Cache-Control"] = "no-store"
    if wait is not None:
        response["Retry-After"] = str(wait)
    add_fields(response, decision.parts)
    return response


def turn_into_refusal(response: HttpResponse, decision: Decision) -> None:
    """Make a 429 from elsewhere the one that all entry points send; its other fields stay."""
    refused = refusal(decision)
    response.content = refused.content
    if "Content-Length" in response:
        response["Content-Length"] = str(len(refused.content))
    for field in _OF_THE_BODY:
        del response[field]
    for field, value in refused.items():
        response[field] = value


def add_fields(response: HttpResponseBase, decisions: Sequence[Decision]) -> None:
    """Put the state of the limits on a response, in the formats of ``RATELIMIT_HEADERS``."""
    shown = [decision for decision in decisions if not decision.shadow]
    for name in conf.headers:
        for field, value in headers.load(name).fields(shown).items():
            response[field] = value


def _detail(wait: int | None) -> str:
    if wait is None:
        return "This request costs more than the whole quota: trying again does not help."
    return f"Too many requests. Try again in {wait} second{'' if wait == 1 else 's'}."
