"""One view with three limits."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from ratelimit_app.decorators import ratelimit


@ratelimit("everyone", "address", "account")
def limited(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [path("limited", limited)]
