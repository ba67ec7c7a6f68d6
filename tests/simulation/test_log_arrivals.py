import pytest

from ratelimit_app import keys
from ratelimit_app.limits import declared, live
from ratelimit_app.simulation.access_log import Entry
from ratelimit_app.simulation.log_arrivals import arrivals, by_key_of, is_client

ENTRY = Entry(5, "192.0.2.1", "-", "GET /a HTTP/1.1")


def key(by, **fields):
    (arrival,) = arrivals([ENTRY._replace(**fields)], by, None)
    assert arrival.at == 5
    return arrival.key


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", "ip:192.0.2.1"),
        ("2001:db8::1:2", "ip:2001:db8::/64"),
        ("::ffff:192.0.2.1", "ip:192.0.2.1"),
    ],
)
def test_address_has_the_key_that_it_has_in_a_request(address, expected, rf):
    assert key("ip", address=address) == expected == keys.ip(rf.get("/", REMOTE_ADDR=address))


@pytest.mark.parametrize(
    ("user", "expected"), [("jane", "user:jane"), ("-", "ip:192.0.2.1"), ('""', "ip:192.0.2.1")]
)
def test_user_counts_by_account_or_else_by_address(user, expected):
    assert key("user", user=user) == expected


@pytest.mark.parametrize(
    ("request_line", "path"),
    [
        ("GET /a?b=c HTTP/1.1", "path:/a"),
        ("GET /%E8%8A%B1 HTTP/1.1", "path:/花"),
        ("GET /a", "path:/a"),
        ("", "path:"),
        (r"\x16\x03", "path:"),
    ],
)
def test_path_is_the_decoded_one_without_its_query(request_line, path):
    assert key("path", request=request_line) == path


def test_everyone_has_one_key():
    assert key("global") == "global"


@pytest.mark.parametrize("address", ["", "-", "example.com", "192.0.2.1:80", "unix:"])
def test_what_is_no_address_is_no_client(address):
    assert not is_client(address)


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        ({}, ["GET /a", "POST /b", "HEAD /a"]),
        ({"path": "^/a"}, ["GET /a", "HEAD /a"]),
        ({"methods": "POST"}, ["POST /b"]),
        ({"methods": "GET"}, ["GET /a", "HEAD /a"]),
        ({"methods": "OPTIONS"}, ["OPTIONS /a"]),
    ],
)
def test_limit_takes_the_lines_that_it_applies_to(fields, applies):
    limit = live(declared("x", {"rate": "5/min", **fields}))
    asked = ["GET /a", "POST /b", "HEAD /a", "OPTIONS /a"]
    entries = [ENTRY._replace(at=index, request=text) for index, text in enumerate(asked)]
    assert [asked[arrival.at] for arrival in arrivals(entries, "ip", limit)] == applies


@pytest.mark.parametrize(
    ("spec", "by"),
    [("ip", "ip"), ("user", "user"), ("user_or_ip", "user"), ("global", "global"), ("header:X-Key", None)],
)
def test_limit_is_counted_by_its_key_where_a_log_tells_that(spec, by):
    assert by_key_of(live(declared("x", {"rate": "5/min", "key": spec}))) == by
