"""Limits in the Django admin."""

import typing
from typing import Any

from django import forms
from django.contrib import admin
from django.db import router
from django.db.models import Count, QuerySet, TextField
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path

from ratelimit_app.counters_page import CountersPage
from ratelimit_app.limit_override import cleaned_key
from ratelimit_app.limits import declared, in_code, load_declared
from ratelimit_app.models import Limit, LimitOverride

if typing.TYPE_CHECKING:
    from django.contrib.admin.options import InlineModelAdmin

#: So many overrides of one limit are edited on its page: a form has at most a thousand fields (Django's
#: ``DATA_UPLOAD_MAX_NUMBER_FIELDS``), an override ten. More of them have a list alone.
MAX_INLINE = 50


class LimitOverrideForm(forms.ModelForm):  # type: ignore[type-arg] # not generic at run time
    def clean_key(self) -> str:
        """Write the key in its one way before two rows of a form are compared."""
        return cleaned_key(self.cleaned_data["key"])


class LimitOverrideInline(admin.TabularInline):  # type: ignore[type-arg] # not generic at run time
    """The overrides of a limit, on its page."""

    model = LimitOverride
    form = LimitOverrideForm
    extra = 0
    fields = ("key", "effect", "rate", "burst", "ends_at", "reason")
    formfield_overrides = {TextField: {"widget": forms.Textarea(attrs={"rows": 2, "cols": 30})}}


@admin.register(Limit)
class LimitAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    """The limits that staff edit, and beside them those that are only in code."""

    list_display = (
        *("name", "rate", "algorithm", "key", "path", "methods", "state", "count_denied", "cost"),
        "exceptions",
    )
    list_filter = ("mode", "algorithm", "count_denied")
    search_fields = ("name", "path", "note")
    fieldsets = (
        (None, {"fields": ("name", "rate", "algorithm", "burst")}),
        ("Whose requests, and which", {"fields": ("key", "path", "methods")}),
        ("What happens to them", {"fields": ("mode", "count_denied", "cost", "charge", "on_error")}),
        ("For staff", {"fields": ("note",)}),
    )
    change_list_template = "ratelimit_app/limit_list.html"
    change_form_template = "ratelimit_app/limit_form.html"
    delete_confirmation_template = "ratelimit_app/limit_delete.html"
    delete_selected_confirmation_template = "ratelimit_app/limit_delete_selected.html"

    @admin.display(description="mode", ordering="mode")
    def state(self, limit: Limit) -> str:
        return limit.mode  # in a column, the word alone

    @admin.display(description="overrides", ordering="override_count")
    def exceptions(self, limit: Limit) -> int:
        return limit.override_count  # type: ignore[attr-defined, no-any-return] # of get_queryset

    def get_queryset(self, request: HttpRequest) -> QuerySet[Limit]:
        limits: QuerySet[Limit] = super().get_queryset(request)
        return limits.annotate(override_count=Count("overrides"))

    def get_inlines(
        self, request: HttpRequest, obj: Limit | None
    ) -> "list[type[InlineModelAdmin[Any, Any]]]":
        if request.method == "POST":  # a form that was sent is read as it was shown
            is_shown = "overrides-TOTAL_FORMS" in request.POST
        else:
            is_shown = obj is None or obj.overrides.count() <= MAX_INLINE
        return [LimitOverrideInline] if is_shown else []

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(CountersPage.as_view(admin_site=self.admin_site))
        return [path("counters/", page, name="ratelimit_app_counters"), *super().get_urls()]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return super().changelist_view(request, {**(extra_context or {}), "only_in_code": _only_in_code()})


@admin.register(LimitOverride)
class LimitOverrideAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    """All overrides, to be searched."""

    form = LimitOverrideForm
    list_display = ("key", "limit", "state", "rate", "burst", "ends_at", "reason")
    list_filter = ("effect", "limit")
    list_select_related = ("limit",)
    search_fields = ("key", "reason")
    fields = ("limit", "key", "effect", "rate", "burst", "ends_at", "reason")

    @admin.display(description="effect", ordering="effect")
    def state(self, override: LimitOverride) -> str:
        return override.effect  # in a column, the word alone


def _only_in_code() -> list[Limit]:
    """List the limits in code that no row of the same name replaces, as rows that are not saved."""
    rows = set(Limit.objects.using(router.db_for_write(Limit)).values_list("name", flat=True))
    specs = in_code()
    return [declared(name, specs[name]) for name in load_declared().by_name if name not in rows]
