import pytest
from django.test import RequestFactory

from ratelimit_app import keys
from ratelimit_app.models import Counter


def request(remote="203.0.113.9", **fields):
    return RequestFactory().get("/", REMOTE_ADDR=remote, headers=fields.pop("headers", None), **fields)


@pytest.mark.parametrize(
    ("remote", "key"),
    [
        ("203.0.113.9", "ip:203.0.113.9"),
        ("2001:db8:1:2::1", "ip:2001:db8:1:2::/64"),
        ("2001:0DB8:0001:0002:0000:0000:0000:0014", "ip:2001:db8:1:2::/64"),
        ("2001:db8:1:2::198.51.100.7", "ip:2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "ip:2001:db8:1:3::/64"),
        ("fe80::1%eth0", "ip:fe80::/64"),
        ("::1", "ip:::/64"),
        ("::ffff:198.51.100.7", "ip:198.51.100.7"),
        ("::FFFF:c633:6407", "ip:198.51.100.7"),
        ("0:0:0:0:0:ffff:c633:6408", "ip:198.51.100.8"),
    ],
)
def test_ip_of_an_address(remote, key, caplog):
    assert keys.ip(request(remote)) == key
    assert not caplog.records


@pytest.mark.parametrize(
    ("prefix", "key"),
    [
        (128, "ip:2001:db8:1:2::9/128"),
        (64, "ip:2001:db8:1:2::/64"),
        (48, "ip:2001:db8:1::/48"),
        (1, "ip:::/1"),
    ],
)
def test_ip_counts_by_the_prefix_of_the_setting(prefix, key, settings):
    settings.RATELIMIT_IPV6_PREFIX = prefix
    assert keys.ip(request("2001:db8:1:2::9")) == key
    assert keys.ip(request("203.0.113.9")) == "ip:203.0.113.9"


MALFORMED = [
    "",
    "unknown",
    "_hidden",
    "203.0.113.9:49152",
    "203.0.113.009",
    " 203.0.113.9 ",
    "203.0.113.9, 198.51.100.7",
    "[2001:db8::1]:443",
    "2001:db8::/64",
    "::/64",
    "3405803785",
    "${jndi:ldap://x}",
    "\x00",
    "\ud800",
    "x" * 10_000,
]
REAL = ["203.0.113.9", "198.51.100.7", "2001:db8::1", "::1", "2001:db8:1:2::9"]


@pytest.mark.parametrize("remote", MALFORMED, ids=range(len(MALFORMED)))
def test_ip_of_what_is_no_address_is_nobody_elses_and_is_reported(remote, caplog):
    key = keys.ip(request(remote))
    assert key not in {keys.ip(request(real)) for real in REAL}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert len(caplog.messages[0]) < 200


@pytest.mark.django_db
@pytest.mark.parametrize("remote", MALFORMED, ids=range(len(MALFORMED)))
def test_ip_of_what_is_no_address_is_still_limited(remote, client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": "2/min"}
    statuses = [client.get("/export", REMOTE_ADDR=remote).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert Counter.objects.get().count == 2


def test_ip_without_a_remote_address_is_one_for_all(caplog):
    bare = request()
    del bare.META["REMOTE_ADDR"]
    assert keys.ip(bare) == keys.ip(request(""))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Client-IP"])
def test_ip_believes_no_header(name):
    assert keys.ip(request(headers={name: "198.51.100.7"})) == "ip:203.0.113.9"


@pytest.mark.django_db
def test_addresses_of_one_network_share_a_row(client, settings, clock):
    settings.RATELIMIT_LIMITS = {"export": "5/min"}
    statuses = [client.get("/export", REMOTE_ADDR=f"2001:db8:1:2::{n:x}").status_code for n in range(1, 21)]
    assert statuses == [200] * 5 + [429] * 15
    assert client.get("/export", REMOTE_ADDR="2001:db8:1:3::1").status_code == 200
    assert Counter.objects.count() == 2
