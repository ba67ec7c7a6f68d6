"""The views that the field reports ask, and key functions and middleware of a project's own."""

import threading
from collections.abc import Callable

from django.contrib.auth.models import User
from django.core.files.uploadhandler import MemoryFileUploadHandler
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app import keys
from ratelimit_app.decorators import ratelimit
from ratelimit_app.throttling import RateLimitThrottle

#: Where requests that ask for ``?meet`` wait for each other inside the view; a test puts its own here.
meeting = threading.Barrier(1)


def plain(request: HttpRequest, **kwargs: str) -> HttpResponse:
    """Answer; a limit meets it by its path, in the middleware."""
    if "fail" in request.GET:
        raise RuntimeError("The view failed, as it was asked to")
    if "meet" in request.GET:
        meeting.wait(20)
    return HttpResponse("ok\n")


decorated = ratelimit("case")(plain)

decorated_twice = ratelimit("case", "other")(plain)

with_own_limit = ratelimit("own")(plain)


class Drf(APIView):
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "case"

    def get(self, request: Request, **kwargs: str) -> Response:
        if "invalid" in request.GET:
            raise ValidationError("The request is not valid, as it was asked to be")
        return Response(plain(request._request).content.decode())


class DrfWithTwo(Drf):
    throttle_limits = ("other",)


class DrfListedTwice(Drf):
    throttle_classes = (RateLimitThrottle, RateLimitThrottle)


@method_decorator(ratelimit("case"), name="dispatch")
class EveryWay(Drf):
    """A view that meets one limit in the middleware, in the decorator and in the throttle."""


def read_form(request: HttpRequest) -> HttpResponse:
    """Answer with what a form holds, read by upload handlers of the view's own."""
    request.upload_handlers = [MemoryFileUploadHandler(request)]
    return HttpResponse(repr((request.POST.dict(), [file.read() for file in request.FILES.values()])))


def read_stream(request: HttpRequest) -> HttpResponse:
    """Answer with the body, read as a stream."""
    return HttpResponse(b"".join(iter(lambda: request.read(1_000), b"")))


class ReadData(APIView):
    def post(self, request: Request) -> Response:
        return Response(repr(request.data))


def path_key(request: HttpRequest) -> str:
    return request.path_info


def header_or_user(request: HttpRequest) -> str | None:
    return keys.load("header:X-Api-Key" if "X-Api-Key" in request.headers else "user")(request)


def log_in_by_header(get_response: Callable[[HttpRequest], HttpResponse]) -> object:
    """Take the user from ``X-User``, as a project does whose users have texts as primary keys."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if "X-User" in request.headers:
            request.user = User(pk=request.headers["X-User"])
        return get_response(request)

    return middleware
