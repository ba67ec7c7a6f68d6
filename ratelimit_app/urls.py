"""The read-only status view, to be included in the URLs of a project."""

from django.urls import path

from ratelimit_app.views import StatusView

app_name = "ratelimit_app"

urlpatterns = [path("status/", StatusView.as_view(), name="status")]
