"""Reports I: whose address it is, behind proxies and in IPv6."""

import pytest

from ratelimit_app.models import Counter
from tests.field_reports.asking import ENTRIES, ask, make_limit

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

PROXY, VICTIM = "10.0.0.5", "203.0.113.200"
BY_PROXY = {"REMOTE_ADDR": PROXY}


def via(written):
    return {**BY_PROXY, "headers": {"X-Forwarded-For": written}}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("trusted", [1, ["10.0.0.0/8"]])
def test_i02_what_a_client_writes_is_no_fresh_start_and_burns_nobody(clock, settings, entry, trusted):
    """Only the entry of the trusted proxy counts; what stands before it is the client's own invention."""
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    make_limit("5/min")
    sent = [via(f"9.9.9.{n}, 198.51.100.7") for n in range(1, 20)] + [via(f"{VICTIM}, 198.51.100.7")]
    assert [ask(entry, 1, **extra)[0] for extra in sent] == [200] * 5 + [429] * 15
    assert ask(entry, 1, **via(VICTIM)) == [200]


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_i02_no_header_is_believed_by_default(clock, name):
    """Who is not behind a proxy of ours cannot change its address."""
    make_limit("5/min")
    written = ({name: f"for=9.9.9.{n}" if name == "Forwarded" else f"9.9.9.{n}"} for n in range(20))
    found = [ask("/plain", 1, REMOTE_ADDR="198.51.100.7", headers=headers)[0] for headers in written]
    assert found == [200] * 5 + [429] * 15


def test_i03_ports_brackets_and_spaces_are_no_other_address(clock, settings):
    """However a proxy spells an address, it is one."""
    settings.RATELIMIT_TRUSTED_PROXIES = 1
    make_limit("2/min")
    spelt = ["203.0.113.5:49152", "203.0.113.5:50001", " 203.0.113.5 "]
    assert [ask("/plain", 1, **via(entry))[0] for entry in spelt] == [200, 200, 429]
    assert ask("/plain", 2, **via("[2001:db8::1]:443")) == [200, 200]
    assert ask("/plain", 1, **via("2001:db8::2")) == [429]


RUBBISH = ["unknown", "_hidden", "${jndi:ldap://x}", "203.0.113.005", "fe80::1%eth0", ""]


def test_i03_rubbish_counts_by_the_proxy_and_is_reported(clock, settings, caplog):
    """What is no address gives nobody a counter of its own, nor a server error."""
    settings.RATELIMIT_TRUSTED_PROXIES = 1
    make_limit("5/min")
    assert [ask("/plain", 1, **via(entry))[0] for entry in RUBBISH] == [200] * 5 + [429]
    assert Counter.objects.get().key.endswith(f"ip:{PROXY}")
    reported = [record for record in caplog.records if record.name == "ratelimit_app"]
    assert [record.levelname for record in reported] == ["WARNING"]


def test_i05_addresses_of_one_network_share_a_counter(clock):
    """A subscriber has a whole /64."""
    make_limit("5/min")
    asked = [ask("/plain", 1, REMOTE_ADDR=f"2001:db8:1:2::{n:x}")[0] for n in range(1, 21)]
    assert asked == [200] * 5 + [429] * 15
    assert ask("/plain", 1, REMOTE_ADDR="2001:0db8:0001:0002:0000:0000:0000:0001") == [429]
    assert Counter.objects.count() == 1
    assert ask("/plain", 1, REMOTE_ADDR="2001:db8:1:3::1") == [200]


@pytest.mark.parametrize("is_forwarded", [False, True])
def test_i06_mapped_address_is_the_ipv4_address(clock, settings, is_forwarded):
    """One host has one counter, however its address is spelt; two hosts have two."""
    settings.RATELIMIT_TRUSTED_PROXIES = int(is_forwarded)
    make_limit("1/min")
    steps = [
        ("198.51.100.7", 200),
        ("::ffff:198.51.100.7", 429),
        ("::ffff:c633:6407", 429),
        ("::ffff:198.51.100.8", 200),
        ("2001:db8:1:2::198.51.100.7", 200),
        ("2001:db8:1:2::9", 429),
    ]
    extras = [via(address) if is_forwarded else {"REMOTE_ADDR": address} for address, _ in steps]
    assert [ask("/plain", 1, **extra)[0] for extra in extras] == [status for _, status in steps]
