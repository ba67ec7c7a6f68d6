import io
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.handlers.asgi import ASGIRequest
from django.test import RequestFactory
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app import keys
from ratelimit_app.hashing import keyed_hash
from ratelimit_app.keys import fields

FORM, JSON = fields.FORM, "application/json"
BY_ADDRESS = "ip:127.0.0.1"
by_name = keys.load("field:name")


def sent(body, kind=JSON, method="POST", **extra):
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return RequestFactory().generic(method, "/", body, kind, **extra)


def upload(**data):
    return RequestFactory().post("/", data)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (sent("name=bob", FORM), "bob"),
        (sent("name=a&name=bob", FORM), "bob"),
        (sent("name=b%6Fb", FORM + "; charset=UTF-8"), "bob"),
        (sent("name=a+b", FORM), "a b"),
        (sent("name=bob", FORM, "PUT"), "bob"),
        (upload(name="bob", file=SimpleUploadedFile("a", b"x")), "bob"),
        (sent('{"name": "bob"}'), "bob"),
        (sent('{"name": "a", "name": "bob"}'), "bob"),
        (sent('{"n\\u0061me": "b\\u006fb"}'), "bob"),
        (sent('{"name": "bob"}', "application/json; charset=utf8", "PATCH"), "bob"),
        (sent('{"name": "bob"}', "application/vnd.api+json"), "bob"),
        (sent('\ufeff{"name": "bob"}'), "bob"),
        (sent('{"name": "bob"}'.encode("utf-16")), "bob"),
        (sent('{"name": 42}'), "42"),
        (sent('{"name": ' + "9" * 10_000 + "}"), "9" * 10_000),
        (sent('{"name": "\\ud800"}'), "\ud800"),
        (sent('{"name": "bob\\u0000"}'), "bob\x00"),
    ],
)
def test_field_is_the_text_that_the_view_reads(request_, text):
    assert by_name(request_) == f"field:name:{keyed_hash(text)}"


MISSING = [
    sent("", FORM),
    sent("name=", FORM),
    sent("nam=bob", FORM),
    sent("name=bob", FORM + "; charset=latin-1"),
    sent("name=bob", "text/plain"),
    sent("name=bob", ""),
    sent("&".join(f"a{n}=1" for n in range(2_000)), FORM),
    upload(file=SimpleUploadedFile("a", b"x")),
    upload(name=SimpleUploadedFile("bob", b"x")),
    sent(b"--x", "multipart/form-data"),
    sent(b"rubbish", "multipart/form-data; boundary=x"),
    sent('{"name": "+AGI-ob"}', "application/json; charset=utf-7"),
    sent('{"name": "bob"}', "application/json; charset=nosuch"),
    *(sent(body) for body in ("", "{", '"name"', "[]", "null", "[" * 200_000, '{"name":' * 100_000)),
    *(
        sent(f'{{"name": {value}}}')
        for value in ("null", '""', "true", "1.5", "1e9", "NaN", "[]", "{}", '["b"]')
    ),
    sent(b'{"name": "\xff"}'),
    RequestFactory().get("/?name=bob"),
]


@pytest.mark.parametrize("request_", MISSING, ids=range(len(MISSING)))
def test_field_that_cannot_be_had_counts_by_address(request_):
    assert by_name(request_) == BY_ADDRESS


@given(st.binary(), st.sampled_from([FORM, JSON, "multipart/form-data; boundary=x", "text/plain"]))
def test_whatever_is_sent_nothing_is_raised_and_the_body_is_still_there(body, kind):
    request = sent(body, kind)
    assert by_name(request).startswith((BY_ADDRESS, "field:name:"))
    assert request.read() == body


# What is too long ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "is_read"), [(15, True), (14, False), (None, True)])
def test_body_is_read_up_to_the_length_that_django_keeps(limit, is_read, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = limit
    request = sent('{"name": "bob"}')
    assert by_name(request).startswith("field:") is is_read
    assert request.read() == b'{"name": "bob"}'


def test_upload_longer_than_that_is_left_to_the_view(settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1_000
    request = upload(name="bob", file=SimpleUploadedFile("a", b"x" * 2_000))
    assert by_name(request) == BY_ADDRESS
    assert (request.POST["name"], request.FILES["file"].size) == ("bob", 2_000)


def test_project_without_a_length_keeps_no_more_than_djangos_own(settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    assert by_name(sent(json.dumps({"name": "b" * 2_700_000}))) == BY_ADDRESS


@pytest.mark.parametrize("length", [None, "", "x", "-1"])
def test_length_that_is_missing_or_wrong_raises_nothing(length):
    request = sent('{"name": "bob"}')
    del request.META["CONTENT_LENGTH"]
    if length is not None:
        request.META["CONTENT_LENGTH"] = length
    assert by_name(request).startswith((BY_ADDRESS, "field:"))


@pytest.mark.parametrize(("limit", "is_read"), [(15, True), (14, False)])
def test_chunked_body_under_asgi_is_read_up_to_the_same_length(limit, is_read, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = limit
    headers = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "client": ("127.0.0.1", 1)}
    request = ASGIRequest(scope, io.BytesIO(b'{"name": "bob"}'))
    assert by_name(request).startswith("field:") is is_read


def test_upload_without_a_length_is_not_read():
    request = upload(name="bob")
    del request.META["CONTENT_LENGTH"]
    assert by_name(request) == BY_ADDRESS
    assert request.read(5).startswith(b"--")


# What the view can still do -----------------------------------------------------------------------


def test_view_chooses_its_own_upload_handlers():
    request = upload(name="bob", file=SimpleUploadedFile("a", b"x"))
    assert by_name(request) != BY_ADDRESS
    request.upload_handlers = request.upload_handlers[:1]
    assert request.POST["name"] == "bob"


def test_body_is_parsed_once_for_several_fields():
    request = sent('{"name": "bob", "mail": "b@example.org"}')
    assert fields.value("name", request) == "bob"
    request._body = b""
    assert fields.value("mail", request) == "b@example.org"


def test_body_that_something_has_read_before_counts_by_address_and_is_reported(caplog):
    request = sent('{"name": "bob"}')
    request.read(1)
    assert by_name(request) == BY_ADDRESS
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_client_that_leaves_while_it_sends_counts_by_address():
    class Broken(io.BytesIO):
        def read(self, *args):
            raise OSError("the client has left")

    request = sent('{"name": "bob"}')
    request._stream = Broken()
    assert by_name(request) == BY_ADDRESS


def test_fields_of_two_names_have_two_keys():
    request = sent('{"a": "x", "b": "x"}')
    assert keys.load("field:a")(request) != keys.load("field:b")(request)
