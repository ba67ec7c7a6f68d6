"""A field that limits by a name is found, too, where the check of CSRF has read the form before."""

import urllib.parse

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from model_bakery import baker
from rest_framework.authentication import SessionAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app.decorators import ratelimit
from ratelimit_app.throttling import RateLimitThrottle

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

TOKEN = "a" * 32


@ratelimit("name")
def named(request):
    return HttpResponse(request.POST["username"])


@ratelimit("1/m", key="field:username")
def inline(request):
    return HttpResponse(request.POST["username"])


class Framework(APIView):
    authentication_classes = (SessionAuthentication,)
    throttle_classes = (RateLimitThrottle,)
    throttle_scope = "name"

    def post(self, request):
        return Response(request.data["username"])


urlpatterns = [
    path("named", named),
    path("inline", inline),
    path("framework", Framework.as_view()),
]


@pytest.mark.parametrize("where", ["/named", "/inline", "/framework"])
@pytest.mark.parametrize("is_multipart", [False, True])
def test_name_counts_wherever_it_comes_from(where, is_multipart, settings):
    settings.RATELIMIT_LIMITS = {"name": {"rate": "1/m", "key": "field:username"}}
    client = Client(enforce_csrf_checks=True)
    client.force_login(baker.make(User))
    client.cookies["csrftoken"] = TOKEN

    def post(name, remote):
        data = {"username": name, "csrfmiddlewaretoken": TOKEN}
        if is_multipart:
            return client.post(where, data, REMOTE_ADDR=remote).status_code
        form = urllib.parse.urlencode(data)
        return client.post(
            where, form, content_type="application/x-www-form-urlencoded", REMOTE_ADDR=remote
        ).status_code

    assert [
        post("bob", "203.0.113.1"),
        post("bob", "203.0.113.2"),
        post("alice", "203.0.113.1"),
    ] == [200, 429, 200]
