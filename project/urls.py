"""The addresses of the demo project."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from project import views

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="ratelimit_app:status"), name="home"),
    path("ping", views.ping, name="ping"),
    path("status", views.status, name="status"),
    path("work", views.work, name="work"),
    path("api/reports", views.Reports.as_view(), name="reports"),
    path("export", views.export, name="export"),
    path("login/", views.Login.as_view(), name="login"),
    path("sign-in/", views.SignIn.as_view(), name="sign-in"),
    path("healthz", views.healthz, name="healthz"),
    path("ratelimit/", include("ratelimit_app.urls")),
    path("admin/", admin.site.urls),
]
