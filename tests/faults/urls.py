"""A view for each limit of the site."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from ratelimit_app.decorators import ratelimit
from ratelimit_app.enforcement import decisions
from tests.faults.site import LIMITS


def view(request: HttpRequest) -> HttpResponse:
    """Tell when it was decided that this may be answered."""
    return HttpResponse(str(decisions(request)[0].at))


urlpatterns = [
    path("up", lambda request: HttpResponse()),
    *(path(limit, ratelimit(limit)(view), name=limit) for limit in LIMITS),
    path("ratelimit/", include("ratelimit_app.urls")),
]
