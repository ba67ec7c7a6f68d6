"""Limits that views bring along: each has counters of its own, and the same ones in every process."""

import functools

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.generic import TemplateView
from model_bakery import baker
from rest_framework.response import Response
from rest_framework.views import APIView

from ratelimit_app.decorators import ratelimit
from ratelimit_app.models import Counter

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.usefixtures("clock")]

RATE = "2/min"
on_dispatch = method_decorator(ratelimit(RATE), name="dispatch")


def made(text):
    @ratelimit(RATE)
    def view(request):
        return HttpResponse(text)

    return view


def said(request, text):
    return HttpResponse(text)


@ratelimit(RATE)
def named(request):
    return HttpResponse("named")


@ratelimit(RATE)
def named_too(request):
    return HttpResponse("named too")


class Base(View):
    text = "ok"

    def get(self, request):
        return HttpResponse(self.text)


@on_dispatch
class One(Base):
    pass


@on_dispatch
class Two(Base):
    pass


@ratelimit(RATE)
class Three(Base):
    pass


class Four(Three):
    pass


class WithMethods(View):
    @ratelimit(RATE)
    def get(self, request):
        return HttpResponse("ok")

    @method_decorator(ratelimit(RATE))
    def post(self, request):
        return HttpResponse("ok")


@ratelimit(RATE)
class Api(APIView):
    def get(self, request):
        return Response("ok")


page = functools.partial(TemplateView.as_view, template_name="429.html")
VIEWS = {
    "named": named,
    "named-too": named_too,
    "made-1": made("1"),
    "made-2": made("2"),
    "lambda-1": ratelimit(RATE)(lambda request: HttpResponse()),
    "lambda-2": ratelimit(RATE)(lambda request: HttpResponse()),
    "partial-1": ratelimit(RATE)(functools.partial(said, text="1")),
    "partial-2": ratelimit(RATE)(functools.partial(said, text="2")),
    "page-1": ratelimit(RATE)(page()),
    "page-2": ratelimit(RATE)(page(extra_context={"detail": "2"})),
    "base": ratelimit(RATE)(Base.as_view()),
    "one": One.as_view(),
    "two": Two.as_view(),
    "three": Three.as_view(),
    "methods": WithMethods.as_view(),
    "api": Api.as_view(),
}
urlpatterns = [
    *[path(name, view) for name, view in VIEWS.items()],
    path("again/<int:pk>", lambda request, pk: named(request)),
    path("four", Four.as_view()),
    path("two-rates", ratelimit("2/min", "3/h")(said), {"text": "ok"}),
    path("two-rates-stacked", ratelimit("3/h")(ratelimit("2/min")(said)), {"text": "ok"}),
    path("rate-twice", ratelimit(RATE)(ratelimit(RATE)(said)), {"text": "ok"}),
    path(
        "two-keys",
        ratelimit(RATE, key="user")(ratelimit(RATE, key=lambda request: "ip:127.0.0.1")(said)),
        {"text": "ok"},
    ),
    path("nobody", ratelimit(RATE, key=lambda request: None)(said), {"text": "ok"}),
    path("by-number", ratelimit(RATE, key=lambda request: 5)(said), {"text": "ok"}),
    path("broken", ratelimit(RATE, key=lambda request: 1 / 0)(said), {"text": "ok"}),
]


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {}


def statuses(where, times=3, client=None):
    return [(client or Client()).get(where).status_code for _ in range(times)]


def test_one_rate_on_many_views_is_a_counter_for_each():
    for where in VIEWS:
        assert statuses(f"/{where}") == [200, 200, 429], where
    assert Counter.objects.count() == len(VIEWS)


def test_methods_of_one_class_are_apart():
    assert statuses("/methods") == [200, 200, 429]
    assert [Client().post("/methods").status_code for _ in range(3)] == [200, 200, 429]


def test_limit_of_a_base_class_is_one_for_its_subclasses():
    assert statuses("/three", 1) + statuses("/four", 2) == [200, 200, 429]


def test_view_with_a_name_of_its_own_is_one_by_every_route():
    assert [*statuses("/named", 1), *statuses("/again/1", 1), *statuses("/again/2", 1)] == [200, 200, 429]


def test_two_rates_on_a_view_count_apart_and_are_one_decision(clock):
    assert statuses("/two-rates") == [200, 200, 429]
    clock.advance(60)
    assert statuses("/two-rates", 2) == [200, 429]
    assert sorted(Counter.objects.values_list("count", flat=True)) == [1, 2, 3]


def test_decorators_that_are_stacked_decide_one_after_another():
    assert statuses("/two-rates-stacked") == [200, 200, 429]
    assert sorted(Counter.objects.values_list("count", flat=True)) == [2, 3]


def test_one_rate_twice_on_a_view_counts_once():
    assert statuses("/rate-twice") == [200, 200, 429]


def test_one_rate_with_two_keys_counts_apart_though_their_texts_are_equal():
    assert statuses("/two-keys", 2) == [200, 200]
    assert [row.count for row in Counter.objects.all()] == [2, 2]
    logged_in = Client()
    logged_in.force_login(baker.make(User))
    assert statuses("/two-keys", 1, logged_in) == [429]


def test_key_that_is_none_limits_nothing_and_a_number_is_a_key():
    assert statuses("/nobody") == [200] * 3
    assert not Counter.objects.exists()
    assert statuses("/by-number") == [200, 200, 429]


def test_key_function_that_fails_counts_by_address_and_is_reported(caplog):
    assert statuses("/broken") == [200, 200, 429]
    assert "The key function" in caplog.text


def test_limit_is_named_by_its_rate():
    answer = [Client().get("/named") for _ in range(3)][-1]
    assert answer["RateLimit-Policy"] == '"2/min";q=2;w=60'
    assert answer.json()["violated-policies"] == ["2/min"]


def test_view_called_by_code_is_limited_without_a_route():
    request = RequestFactory().get("/")
    assert [made("1")(RequestFactory().get("/")).status_code for _ in range(3)] == [200, 200, 429]
    assert named(request).status_code == 200
