"""Views that end in every way there is, and what they leave behind; each by middleware, decorator and DRF."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from rest_framework.exceptions import APIException, NotFound, ValidationError
from rest_framework.exceptions import PermissionDenied as NotPermitted
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from project.models import ApiCall
from ratelimit_app import keys, limiter
from ratelimit_app.decorators import ratelimit
from ratelimit_app.throttling import RateLimitThrottle

ENTRIES = ("plain", "decorated", "drf")

#: Where views wait for each other; a test puts its own here.
meeting = threading.Barrier(1)
inside = threading.Semaphore(0)


def fail(error: Exception) -> None:
    raise error


def break_off() -> None:
    """Leave the transaction broken, as a view does that catches an error of the database too late."""
    row = ApiCall.objects.create(client="broken")
    try:
        ApiCall.objects.create(pk=row.pk, client="twice")
    except IntegrityError:
        return


#: What a view does when it has written a row; the status that follows; whether the row stays.
ENDINGS: Mapping[str, tuple[Callable[[], object], int, bool]] = {
    "answers": (lambda: None, 200, True),
    "answers-400": (lambda: 400, 400, True),
    "answers-403": (lambda: 403, 403, True),
    "answers-500": (lambda: 500, 500, True),
    "raises": (lambda: fail(RuntimeError("as asked")), 500, False),
    "raises-404": (lambda: fail(Http404()), 404, False),
    "raises-403": (lambda: fail(PermissionDenied()), 403, False),
    "raises-400": (lambda: fail(SuspiciousOperation("as asked")), 400, False),
    "sets-rollback": (lambda: transaction.set_rollback(True), 200, False),
    "breaks-the-transaction": (break_off, 200, False),
}

#: What REST framework answers itself, and rolls back, besides.
DRF_ENDINGS: Mapping[str, tuple[Callable[[], object], int, bool]] = {
    "drf-400": (lambda: fail(ValidationError()), 400, False),
    "drf-403": (lambda: fail(NotPermitted()), 403, False),
    "drf-404": (lambda: fail(NotFound()), 404, False),
    "drf-500": (lambda: fail(APIException()), 500, False),
}


def end(ending: str) -> int:
    """Write a row, and end so; return the status to answer with."""
    ApiCall.objects.create(client=ending)
    ends, _, _ = {**ENDINGS, **DRF_ENDINGS}[ending]
    return int(ends() or 200)  # type: ignore[call-overload]


def meet() -> int:
    inside.release()
    meeting.wait(30)
    return 200


def consume(request: HttpRequest, moment: str) -> HttpResponse:
    """Take of the limit in a transaction, at a moment of it."""
    allowed = MOMENTS[moment](keys.ip(request))
    # What the caller has written is there, and the transaction goes on.
    ApiCall.objects.create(client="after")
    return HttpResponse(status=200 if allowed else 429)


def _take(key: str) -> bool:
    return limiter.consume("case", key).allowed


def _after_a_read(key: str) -> bool:
    assert ApiCall.objects.count() >= 0
    return _take(key)


def _after_a_write(key: str) -> bool:
    ApiCall.objects.create(client="before")
    return _take(key)


def _in_a_savepoint(key: str) -> bool:
    with transaction.atomic():
        ApiCall.objects.create(client="before")
        return _take(key)


def _in_a_savepoint_that_goes_back(key: str) -> bool:
    with transaction.atomic():
        ApiCall.objects.create(client="goes back")
        allowed = _take(key)
        transaction.set_rollback(True)
    return allowed


def _after_an_error(key: str) -> bool:
    row = ApiCall.objects.create(client="before")
    try:
        with transaction.atomic():
            ApiCall.objects.create(pk=row.pk, client="twice")
    except IntegrityError:
        return _take(key)
    return False


MOMENTS: Mapping[str, Callable[[str], bool]] = {
    "at-once": _take,
    "after-a-read": _after_a_read,
    "after-a-write": _after_a_write,
    "in-a-savepoint": _in_a_savepoint,
    "in-a-savepoint-that-goes-back": _in_a_savepoint_that_goes_back,
    "after-an-error": _after_an_error,
}


def _of(work: Callable[..., int]) -> Mapping[str, Callable[..., Any]]:
    """Return a view that does this work for each of the entries."""

    def plain(request: HttpRequest, **kwargs: str) -> HttpResponse:
        return HttpResponse("ok", status=work(**kwargs))

    class Drf(APIView):
        throttle_classes = (RateLimitThrottle,)
        throttle_scope = "case"

        def get(self, request: Request, **kwargs: str) -> Response:
            return Response("ok", status=work(**kwargs))

    return {"plain": plain, "decorated": ratelimit("case")(plain), "drf": Drf.as_view()}


urlpatterns = [
    *[path(f"{entry}/end/<slug:ending>", view) for entry, view in _of(end).items()],
    *[path(f"{entry}/meet", view) for entry, view in _of(meet).items()],
    path("consume/<slug:moment>", consume),
]
