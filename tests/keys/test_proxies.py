import io
import ipaddress
import itertools

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import RequestFactory, override_settings
from hypothesis import given
from hypothesis import strategies as st

from ratelimit_app import keys
from ratelimit_app.keys import proxies

PROXY, CLIENT, OTHER = "10.0.0.5", "198.51.100.7", "203.0.113.200"
NETWORKS = ["10.0.0.0/8", "2001:db8:ff::/48"]


def key(remote, header=None, name="X-Forwarded-For"):
    headers = {} if header is None else {name: header}
    return keys.ip(RequestFactory().get("/", REMOTE_ADDR=remote, headers=headers))


@pytest.mark.parametrize(
    ("trusted", "remote", "header", "found"),
    [
        (0, CLIENT, OTHER, CLIENT),
        ([], CLIENT, OTHER, CLIENT),
        (1, PROXY, CLIENT, CLIENT),
        (1, PROXY, f"{OTHER}, {CLIENT}", CLIENT),
        (1, PROXY, f"{OTHER},,,{CLIENT}", CLIENT),
        (1, PROXY, f"rubbish,{CLIENT}", CLIENT),
        (2, PROXY, f"{OTHER}, {CLIENT}, 10.0.0.6", CLIENT),
        (1, "", CLIENT, CLIENT),
        (NETWORKS, PROXY, CLIENT, CLIENT),
        (NETWORKS, PROXY, f"{OTHER}, {CLIENT}", CLIENT),
        (NETWORKS, PROXY, f"{OTHER}, {CLIENT}, 10.0.0.6, 2001:db8:ff::1", CLIENT),
        (NETWORKS, PROXY, f"rubbish, {CLIENT}", CLIENT),
        (NETWORKS, PROXY, f"{OTHER}, {CLIENT}, ::ffff:10.0.0.6", CLIENT),
        (NETWORKS, "::ffff:10.0.0.5", CLIENT, CLIENT),
        (NETWORKS, "2001:db8:ff::1", CLIENT, CLIENT),
        (NETWORKS, CLIENT, OTHER, CLIENT),
        (NETWORKS, PROXY, "10.1.1.1, 10.0.0.6", "10.1.1.1"),
        (NETWORKS, PROXY, "rubbish, 10.1.1.1", "10.1.1.1"),
        (NETWORKS, PROXY, "rubbish, 10.1.1.1, 10.0.0.6", "10.1.1.1"),
        (("10.0.0.5",), PROXY, CLIENT, CLIENT),
        (("10.0.0.5",), "10.0.0.6", CLIENT, "10.0.0.6"),
    ],
)
def test_client_is_whom_the_outermost_trusted_proxy_saw(trusted, remote, header, found, settings, caplog):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    assert key(remote, header) == f"ip:{found}"
    assert not caplog.records


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("203.0.113.5:49152", "203.0.113.5"),
        ("203.0.113.5:50001", "203.0.113.5"),
        ("  203.0.113.5\t", "203.0.113.5"),
        ("[2001:db8::1]:443", "2001:db8::/64"),
        ("[2001:db8::1]", "2001:db8::/64"),
        ("2001:DB8::1", "2001:db8::/64"),
        ("::ffff:203.0.113.5", "203.0.113.5"),
        ("[::ffff:cb00:7105]:1", "203.0.113.5"),
    ],
)
@pytest.mark.parametrize("trusted", [1, NETWORKS])
def test_entry_may_have_a_port_brackets_and_spaces(trusted, entry, found, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    assert key(PROXY, f"{OTHER},{entry}") == f"ip:{found}"


RUBBISH = ["unknown", "_hidden", "${jndi:ldap://x}", "203.0.113.005", "fe80::1%eth0", "", " ", "203.0.113.5:"]
RUBBISH += [
    "203.0.113.5:x",
    "[2001:db8::1",
    "2001:db8::1]",
    "1234",
    "203.0.113.5/24",
    "\x00",
    "\ud800",
    "\u0661.1.1.1",
]
RUBBISH += ["203.0.113.5 198.51.100.7", ":" * 10_000, "1" * 10_000, "\n"]


@pytest.mark.parametrize("entry", RUBBISH, ids=range(len(RUBBISH)))
@pytest.mark.parametrize("trusted", [1, NETWORKS])
def test_entry_that_is_no_address_counts_by_the_proxy_and_is_reported_once(trusted, entry, settings, caplog):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    sent = RequestFactory().get("/", REMOTE_ADDR=PROXY, HTTP_X_FORWARDED_FOR=f"{OTHER},{entry}")
    assert [keys.ip(sent), keys.ip(sent)] == [f"ip:{PROXY}"] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    ("trusted", "header"),
    [(1, None), (2, CLIENT), (NETWORKS, None), (-1, CLIENT), ("10.0.0.0/8", CLIENT), (["x"], CLIENT)],
)
def test_header_that_is_missing_or_short_or_a_wrong_setting_is_reported(trusted, header, settings, caplog):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    assert key(PROXY, header) == f"ip:{PROXY}"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# Forwarded, and other headers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (f"for={CLIENT}", CLIENT),
        (f"for={OTHER}, for={CLIENT}", CLIENT),
        (f'For="{CLIENT}:4711";proto=http;by=203.0.113.43', CLIENT),
        (f'proto=https; FOR="{CLIENT}"', CLIENT),
        (f"for={CLIENT}:4711", CLIENT),
        ('for="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::/64"),
        (f'for={CLIENT};host="a, for={OTHER}"', CLIENT),
        (f'for={CLIENT};host="\\", for={OTHER}"', CLIENT),
        (f"for=_hidden, for={CLIENT}", CLIENT),
        # Rubbish that a client has sent, and what a proxy has appended to it.
        (f"rubbish, for={CLIENT}", CLIENT),
        (f", for={CLIENT}", CLIENT),
        (f"for={OTHER};, for={CLIENT}", CLIENT),
        (f"for={OTHER};for={OTHER}, for={CLIENT}", CLIENT),
        (f'for="{OTHER}, for={CLIENT}', CLIENT),
        (f'for="{OTHER}, for="{CLIENT}"', CLIENT),
        (f'for="{OTHER}, for="{CLIENT}";host="a, b"', CLIENT),
        (f'for="{OTHER}\\, for="{CLIENT}:80"', CLIENT),
        (f'for={OTHER};host="a\\", for={CLIENT};host="\\""', CLIENT),
        (f'"\\, for={CLIENT};host="\\\\"', CLIENT),
        # What the proxy has written is not as the standard has it, or names nobody.
        (f'for={OTHER}, for="{CLIENT}', PROXY),
        (f'for={OTHER}, for={CLIENT}"', PROXY),
        (f'for={OTHER}, x"for={CLIENT}', PROXY),
        (f'for={OTHER}, for="{CLIENT}\\"', PROXY),
        (f"for={OTHER};for={CLIENT}", PROXY),
        ("for=unknown", PROXY),
        ("proto=https", PROXY),
        (CLIENT, PROXY),
        (f"for={CLIENT},", PROXY),
        (f"for={CLIENT};", PROXY),
        ("for=", PROXY),
        ("", PROXY),
    ],
)
@pytest.mark.parametrize("trusted", [1, NETWORKS])
def test_forwarded_is_read_by_its_grammar(trusted, header, found, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    settings.RATELIMIT_PROXY_HEADER = "Forwarded"
    assert key(PROXY, header, "Forwarded") == f"ip:{found}"


@pytest.mark.parametrize("lines", [[f"for={OTHER}", f"for={CLIENT}"], ['for="', f"for={CLIENT}"]])
@pytest.mark.parametrize("trusted", [1, NETWORKS])
def test_several_lines_of_the_header_are_one_list(trusted, lines, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    settings.RATELIMIT_PROXY_HEADER = "Forwarded"
    sent = [(b"forwarded", line.encode()) for line in lines]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": sent, "client": (PROXY, 1)}
    assert keys.ip(ASGIRequest(scope, io.BytesIO())) == f"ip:{CLIENT}"


def test_another_header_may_be_named_and_is_the_only_one_read(settings):
    settings.RATELIMIT_TRUSTED_PROXIES = 1
    settings.RATELIMIT_PROXY_HEADER = "x-real-ip"
    headers = {"X-Real-IP": CLIENT, "X-Forwarded-For": OTHER, "Forwarded": f"for={OTHER}"}
    assert keys.ip(RequestFactory().get("/", REMOTE_ADDR=PROXY, headers=headers)) == f"ip:{CLIENT}"


# Whatever is sent ---------------------------------------------------------------------------------

PIECES = [
    *RUBBISH[:14],
    CLIENT,
    PROXY,
    "for=",
    '"',
    "\\",
    ";",
    ",",
    " ",
    "[",
    "]",
    ":1",
    "=",
    "%",
    "::1",
    "by=_x",
]
SENT = st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join))


@given(SENT, SENT, st.sampled_from([0, 1, 2, NETWORKS, ["::/0", "0.0.0.0/0"]]), st.booleans())
def test_whatever_is_sent_the_key_is_an_address_and_nothing_is_raised(remote, header, trusted, is_standard):
    name = "Forwarded" if is_standard else "X-Forwarded-For"
    with override_settings(RATELIMIT_TRUSTED_PROXIES=trusted, RATELIMIT_PROXY_HEADER=name):
        found = key(PROXY, header, name)
        ipaddress.ip_network(found.removeprefix("ip:"))
        assert key(remote, header, name).startswith("ip:")


@given(SENT, st.ip_addresses().filter(lambda address: not address.is_private))
def test_what_a_client_writes_before_the_proxy_does_not_change_its_key(written, address):
    entries = {"X-Forwarded-For": str(address), "Forwarded": f'for="[{address}]:80";host="a, \\"b"'}
    if address.version == 4:
        entries["Forwarded"] = f'host="\\\\";for={address}'
    for trusted, (name, entry) in itertools.product((1, NETWORKS), entries.items()):
        with override_settings(RATELIMIT_TRUSTED_PROXIES=trusted, RATELIMIT_PROXY_HEADER=name):
            assert key(PROXY, f"{written}, {entry}", name) == f"ip:{keys.client(str(address))}"


# The setting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", [True, -1, 1.0, None, "10.0.0.0/8", [10], ["10.0.0.1/8"], [""], {}])
def test_setting_that_will_not_do_is_an_error(setting):
    with pytest.raises(ValueError, match=r"."):
        proxies.parse(setting)


def test_mapped_network_is_an_error_that_says_how_to_write_it():
    with pytest.raises(ValueError, match="as the IPv4 network, got '::ffff:"):
        proxies.parse(["::ffff:10.0.0.0/104"])
