"""A field of the request's form or JSON body, read so that the view can still read the body itself."""

import io
import json
import logging
from collections.abc import Mapping
from typing import Any

from django.conf import global_settings, settings
from django.http import HttpRequest, QueryDict, RawPostDataException
from django.http.multipartparser import MultiPartParser

from ratelimit_app.hashing import keyed_hash
from ratelimit_app.keys.addresses import ip
from ratelimit_app.reporting import report

FORM = "application/x-www-form-urlencoded"
UPLOAD = "multipart/form-data"
JSON = ("application/json", "+json")

_READ = "_ratelimit_fields"


def field(name: str, request: HttpRequest) -> str:
    """Count by a field of the body, kept only as a keyed hash; by address where ``value`` finds none."""
    text = value(name, request)
    return ip(request) if text is None else f"field:{name}:{keyed_hash(text)}"


def value(name: str, request: HttpRequest) -> str | None:
    """Return the text of a form's field, or the text or whole number at the top level of a JSON object.

    ``None`` if it is not there, empty, or something else, or if the body cannot be read: of another
    type, longer than ``DATA_UPLOAD_MAX_MEMORY_SIZE``, malformed, or not in UTF-8. Where a name comes
    several times, the last one counts, as it does in views. The body stays as it was for the view.
    """
    fields: Mapping[str, object] | None = request.__dict__.get(_READ)
    if fields is None:
        fields = request.__dict__[_READ] = _fields(request)
    found = fields.get(name)
    return found if isinstance(found, str) and found else None


def _fields(request: HttpRequest) -> Mapping[str, object]:
    kind = request.content_type or ""
    if not (kind in (FORM, UPLOAD) or kind.endswith(JSON)) or not _is_utf_8(request):
        return {}
    if kind in (FORM, UPLOAD) and "_post" in request.__dict__ and "_body" not in request.__dict__:
        return request.POST  # the check of CSRF, say, has read the body
    try:
        body = _body(request)
        return _parsed(kind, request, body) if body else {}
    except RawPostDataException:
        report(logging.WARNING, "Something has read the body before the limit by a field of it could")
    except Exception:  # noqa: S110 - a body may be wrong in more ways than can be listed
        pass
    return {}


def _body(request: HttpRequest) -> bytes | None:
    """Return the body if it is short enough to be kept, from where the view reads it again."""
    length = request.META.get("CONTENT_LENGTH") or None
    if length is None and request.content_type == UPLOAD:
        return None  # Django reads no upload of unknown length
    if int(length or 0) > _longest():
        return None
    return request.body


def _longest() -> int:
    longest = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return global_settings.DATA_UPLOAD_MAX_MEMORY_SIZE if longest is None else longest


def _parsed(kind: str, request: HttpRequest, body: bytes) -> Mapping[str, Any]:
    if kind == FORM:
        return QueryDict(body, encoding="utf-8")
    if kind == UPLOAD:
        # Not by request.POST: after that a view could not choose its own upload handlers.
        return MultiPartParser(request.META, io.BytesIO(body), [], "utf-8").parse()[0]
    # A whole number stays the text that it is, however long.
    parsed = json.loads(body, parse_int=str)
    return parsed if isinstance(parsed, dict) else {}


def _is_utf_8(request: HttpRequest) -> bool:
    # In another charset, such as UTF-7, one text can be written in any number of ways.
    charset = (request.content_params or {}).get("charset", "utf-8")
    return charset.lower() in ("utf-8", "utf8")
