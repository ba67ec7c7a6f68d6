"""The demo's endpoints: each shows one way to apply a limit."""

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_GET, require_safe
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from project import keys
from project.models import ApiCall
from ratelimit_app import limiter, responses
from ratelimit_app.decorators import ratelimit
from ratelimit_app.throttling import RateLimitThrottle


@require_GET
def ping(request: HttpRequest) -> HttpResponse:
    """Answer three times a minute for each client; every attempt is counted."""
    client = keys.client_key(request)
    decision = limiter.consume("ping", client)
    if not decision.allowed:
        return responses.refusal(decision)
    ApiCall.objects.create(client=client)
    response = JsonResponse({"pong": True})
    responses.add_fields(response, [decision])
    return response


@require_GET
def status(request: HttpRequest) -> HttpResponse:
    """Tell how often a client of ``/ping`` was counted in this window, without counting."""
    sent = request.GET.get("key") or "127.0.0.1"
    return JsonResponse({"key": sent, "count": limiter.peek("ping", keys.hashed_client_key(sent)).used})


@require_GET
def work(request: HttpRequest) -> HttpResponse:
    """Answer two times in ten seconds for each client, in a form of its own."""
    client = keys.client_id(request)
    if client is None:
        return JsonResponse({"error": "invalid_client"}, status=400)
    decision = limiter.consume("work", client)
    if decision.allowed:
        return JsonResponse({"ok": True})
    headers = {"Retry-After": str(decision.retry_after_seconds)}
    return JsonResponse({"error": "rate_limited"}, status=429, headers=headers)


class Reports(APIView):
    """A view of Django REST framework, with the limit that its scope names."""

    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "reports"

    def get(self, request: Request) -> Response:
        return Response({"reports": []})


@require_safe
@ratelimit("export")
def export(request: HttpRequest) -> HttpResponse:
    """Answer from a plain view with a limit on it."""
    return HttpResponse("id,total\r\n", content_type="text/csv")


@method_decorator(ratelimit("login"), name="dispatch")
class Login(LoginView):
    """A log-in form: five posts a minute from one address; looking at the form is free."""

    template_name = "project/login.html"
    next_page = "/ratelimit/status/"


@method_decorator(ratelimit("sign-in-name", "sign-in-address"), name="dispatch")
class SignIn(LoginView):
    """A log-in form where only failures count, by name and address, and by address alone."""

    template_name = "project/login.html"
    next_page = "/ratelimit/status/"


def healthz(request: HttpRequest) -> HttpResponse:
    """Tell a probe that the site is up; no limit reaches it."""
    return HttpResponse("ok\n", content_type="text/plain")
