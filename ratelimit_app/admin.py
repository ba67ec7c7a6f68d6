"""Limits in the Django admin."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from ratelimit_app.conf import conf
from ratelimit_app.counters_page import CountersPage
from ratelimit_app.limits import declared, load_declared
from ratelimit_app.models import Limit


@admin.register(Limit)
class LimitAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    """The limits that staff edit, and beside them those that are only in code."""

    list_display = ("name", "rate", "algorithm", "key", "path", "methods", "state", "count_denied", "cost")
    list_filter = ("mode", "algorithm", "count_denied")
    search_fields = ("name", "path", "note")
    fieldsets = (
        (None, {"fields": ("name", "rate", "algorithm", "burst")}),
        ("Whose requests, and which", {"fields": ("key", "path", "methods")}),
        ("What happens to them", {"fields": ("mode", "count_denied", "cost", "charge")}),
        ("For staff", {"fields": ("note",)}),
    )
    change_list_template = "ratelimit_app/limit_list.html"
    change_form_template = "ratelimit_app/limit_form.html"
    delete_confirmation_template = "ratelimit_app/limit_delete.html"
    delete_selected_confirmation_template = "ratelimit_app/limit_delete_selected.html"

    @admin.display(description="mode", ordering="mode")
    def state(self, limit: Limit) -> str:
        return limit.mode  # in a column, the word alone

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(CountersPage.as_view(admin_site=self.admin_site))
        return [path("counters/", page, name="ratelimit_app_counters"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "only_in_code": _only_in_code()})


def _only_in_code() -> list[Limit]:
    """List the limits in code that no row of the same name replaces, as rows that are not saved."""
    rows = set(Limit.objects.values_list("name", flat=True))
    return [declared(name, conf.limits[name]) for name in load_declared().by_name if name not in rows]
