"""The admin's page of counters: look, search by the beginning of the key, reset.

The admin takes no model with a composite primary key, and its lists count all rows. This page reads
one range of the primary key's index, whatever the size of the table.
"""

import re
from typing import Any
from urllib.parse import unquote, urlencode

from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.views.generic import TemplateView

from ratelimit_app import receipts, windows
from ratelimit_app.conf import conf
from ratelimit_app.models import Counter
from ratelimit_app.outages import Unanswered
from ratelimit_app.stores import Row

PAGE_SIZE = 100

_STORED_KEY = re.compile(r"[!-~]{1,255}")
_AFTER = re.compile(r"(?P<window_start>-?[0-9]{1,18}):(?P<key>[!-~]{1,255})")

#: Comes before every row, and a character that comes behind all those of a stored key.
_BEFORE_ALL = Row("", 0)
_BEHIND_ALL = "\x7f"


class CountersPage(PermissionRequiredMixin, TemplateView):
    """Show counters in the order of their keys and windows; a POST with a ``key`` resets that key."""

    admin_site = admin.site
    permission_required = "ratelimit_app.view_counter"
    template_name = "ratelimit_app/counters.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        query, after = self.request.GET.get("q", "").strip(), self.request.GET.get("after", "")
        counters = _read(query, _row(after))
        return {
            **self.admin_site.each_context(self.request),
            "title": "Counters",
            "query": query,
            "lines": [_line(counter) for counter in counters[:PAGE_SIZE]],
            "first_page": urlencode({"q": query}) if after else "",
            "next_page": _next_page(query, counters),
        }

    def post(self, request: HttpRequest) -> HttpResponse:
        if not request.user.has_perm("ratelimit_app.delete_counter"):
            raise PermissionDenied
        key = request.POST.get("key", "")
        if not _STORED_KEY.fullmatch(key):
            raise BadRequest("key: not a stored key")
        try:
            receipts.forget(key)
        except Unanswered:
            messages.error(request, "The counters could not be asked: nothing was reset. Try again.")
        else:
            _log_reset(request, key)
            messages.success(request, f"Reset {key}")
        return HttpResponseRedirect(request.get_full_path())


def _row(after: str) -> Row:
    """Read the ``after`` of a link; what is none starts from the beginning."""
    match = _AFTER.fullmatch(after)
    return Row(match["key"], int(match["window_start"])) if match else _BEFORE_ALL


def _read(beginning: str, after: Row) -> list[Counter]:
    """Read a page of the keys with a beginning, behind a row, and one counter more if there is one."""
    if beginning and not _STORED_KEY.fullmatch(beginning):
        return []
    # Bounds on the key alone, because MySQL does not read a range by a pair.
    counters = Counter.objects.using(conf.database).filter(
        key__gte=max(beginning, after.key), key__lt=beginning + _BEHIND_ALL
    )
    seen = {"key": after.key, "window_start__lte": after.window_start}
    return list(counters.exclude(**seen).order_by("key", "window_start")[: PAGE_SIZE + 1])


def _line(counter: Counter) -> dict[str, object]:
    return {
        "limit": _limit_name(counter.key),
        "key": counter.key,
        "window_start": _moment(counter.window_start),
        "count": counter.count,
        "expires_at": _moment(counter.expires_at),
    }


def _limit_name(stored_key: str) -> str:
    space, _, _ = stored_key.partition(":")
    return unquote(space).rpartition("@")[0] or space  # a long name is only there as a hash


def _moment(microseconds: int) -> str:
    """Write an instant with its offset from UTC: a night has the same hour twice."""
    try:
        return timezone.localtime(windows.to_datetime(microseconds)).isoformat(" ")
    except OverflowError:  # behind the year 9999
        return str(microseconds)


def _next_page(query: str, counters: list[Counter]) -> str:
    if len(counters) <= PAGE_SIZE:
        return ""
    last = counters[PAGE_SIZE - 1]
    return urlencode({"q": query, "after": f"{last.window_start}:{last.key}"})


def _log_reset(request: HttpRequest, key: str) -> None:
    LogEntry.objects.create(
        user_id=request.user.pk,  # type: ignore[misc] # nobody is let in who is not logged in
        content_type=ContentType.objects.get_for_model(Counter),
        object_id=key,
        object_repr=key[:200],
        action_flag=DELETION,
        change_message="Reset.",
    )
