"""The addresses that the field reports ask."""

from django.contrib import admin
from django.urls import include, path

from tests.field_reports import views

urlpatterns = [
    path("plain", views.plain),
    path("decorated", views.decorated),
    path("drf", views.Drf.as_view()),
    path("decorated-twice", views.decorated_twice),
    path("drf-with-two", views.DrfWithTwo.as_view()),
    path("drf-listed-twice", views.DrfListedTwice.as_view()),
    path("every-way", views.EveryWay.as_view()),
    path("with-own-limit", views.with_own_limit),
    path("api/<path:rest>", views.plain),
    path("x", views.plain),
    path("1/x", views.plain),
    path("who/<path:who>", views.plain),
    path("login/", views.decorated),
    path("verify/<slug:code>/", views.decorated),
    path("body/form", views.read_form),
    path("body/stream", views.read_stream),
    path("body/drf", views.ReadData.as_view()),
    path("tenants/<str:tenant>/", views.plain),
    path("healthz", views.plain, name="healthz"),
    path("healthz/<path:rest>", views.plain, name="below-healthz"),
    path("ratelimit/", include("ratelimit_app.urls")),
    path("admin/", admin.site.urls),
]
