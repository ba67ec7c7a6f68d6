"""One view with three limits, and who has served it."""

import os

from django.http import HttpRequest, HttpResponse
from django.urls import path

from ratelimit_app.decorators import ratelimit


@ratelimit("everyone", "address", "account")
def limited(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(os.getpid()))


urlpatterns = [path("limited", limited)]
