"""Overrides: how a key is written, and which one a key finds."""

import pytest

from ratelimit_app import overrides
from ratelimit_app.overrides import Override, Overrides
from ratelimit_app.policy import Policy

KEY = "ip:203.0.113.9"


# The way of writing a key -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("user:42", "user:42"),
        (" user:42 ", "user:42"),
        ("global", "global"),
        ("User:Ä b", "User:Ä b"),
        ("header:x-api-key:0123abcd", "header:x-api-key:0123abcd"),
        ("12/3", "12/3"),
        ("ip:?no address", "ip:?no address"),
        ("203.0.113.9", KEY),
        (KEY, KEY),
        ("203.0.113.9/32", KEY),
        ("::ffff:203.0.113.9", KEY),
        ("::ffff:cb00:7109", KEY),
        ("203.0.113.0/24", "ip:203.0.113.0/24"),
        ("ip:203.0.113.0/24", "ip:203.0.113.0/24"),
        ("203.0.113.0/255.255.255.0", "ip:203.0.113.0/24"),
        ("::ffff:203.0.113.0/120", "ip:203.0.113.0/24"),
        ("0.0.0.0/0", "ip:0.0.0.0/0"),
        ("2001:DB8:0::1", "ip:2001:db8::/64"),
        ("ip:2001:db8::1", "ip:2001:db8::/64"),
        ("2001:db8::/64", "ip:2001:db8::/64"),
        ("2001:db8::/48", "ip:2001:db8::/48"),
        ("2001:db8::1/128", "ip:2001:db8::1/128"),
        ("fe80::1%eth0", "ip:fe80::/64"),
        ("fe80::%eth0/64", "ip:fe80::/64"),
        ("::/0", "ip:::/0"),
    ],
)
def test_normal_key_is_the_one_way_of_writing_it(text, normal):
    assert overrides.normal_key(text) == normal
    assert overrides.normal_key(normal) == normal


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "203.0.113.9/24", "203.0.113.0/33", "999.0.0.1", "1.2.3.4/", "1.2.3.4/x"),
        *("ip:", "ip:nobody", "ip:10.0.0", "2001:db8::1/64", "2001:db8::/129", "1::2::3"),
    ],
)
def test_normal_key_of_what_looks_like_an_address_and_is_none_is_an_error(text):
    with pytest.raises(ValueError, match=r"^key: an address, a network .*, got "):
        overrides.normal_key(text)


def test_normal_key_follows_the_setting_of_the_prefix(settings):
    settings.RATELIMIT_IPV6_PREFIX = 56
    assert overrides.normal_key("2001:db8::1") == "ip:2001:db8::/56"
    settings.RATELIMIT_IPV6_PREFIX = 128
    assert overrides.normal_key("2001:db8::1") == "ip:2001:db8::1/128"


# Which one a key finds ----------------------------------------------------------------------------


def made_of(*texts, ended=()):
    """Overrides that say by their policy which text they were made of."""
    return Overrides(
        (
            overrides.place(text),
            Override("rate", Policy.parse("1/s", name=text), 0 if text in ended else None),
        )
        for text in texts
    )


WIDE = [
    "0.0.0.0/0",
    "203.0.0.0/16",
    "203.0.113.0/24",
    "203.0.113.9",
    "2001:db8::/32",
    "2001:db8:0:1::/64",
    "::/0",
]


@pytest.mark.parametrize(
    ("texts", "key", "found"),
    [
        ([], "user:42", None),
        ([], KEY, None),
        (["user:42"], "user:42", "user:42"),
        (["user:42"], "user:421", None),
        (["user:42"], "USER:42", None),
        (["global"], "global", "global"),
        (["203.0.113.9"], KEY, "203.0.113.9"),
        (["203.0.113.9"], "203.0.113.9", None),
        (["203.0.113.0/24"], "203.0.113.9", None),
        (["203.0.113.0/24"], "203.0.113.0/24", None),
        (["0.0.0.0/0"], "0.0.0.0/0", None),
        (["203.0.113.9"], "ip:203.0.113.90", None),
        (["203.0.113.0/24"], KEY, "203.0.113.0/24"),
        (["203.0.113.0/24"], "ip:::ffff:203.0.113.9", "203.0.113.0/24"),
        (["::ffff:203.0.113.0/120"], KEY, "::ffff:203.0.113.0/120"),
        (["203.0.113.0/24"], "ip:203.0.114.9", None),
        (["203.0.113.0/24"], "user:42", None),
        (["203.0.113.0/24"], "ip:?203.0.113.9", None),
        (["203.0.113.0/24"], "ip:2001:db8::/64", None),
        (["::/0"], KEY, None),
        (["0.0.0.0/0"], "ip:2001:db8::/64", None),
        (["2001:db8::/48"], "ip:2001:db8:0:7::/64", "2001:db8::/48"),
        (["2001:db8::/48"], "ip:2001:db8:1::/64", None),
        (["2001:db8::5"], "ip:2001:db8::/64", "2001:db8::5"),
        (["2001:db8::/80"], "ip:2001:db8::/64", None),
        (["2001:db8::/80"], "2001:db8::7", None),
        (["2001:db8::/80"], "ip:2001:db8::7", "2001:db8::/80"),
        (WIDE, KEY, "203.0.113.9"),
        (WIDE, "ip:203.0.113.8", "203.0.113.0/24"),
        (WIDE, "ip:203.0.112.8", "203.0.0.0/16"),
        (WIDE, "ip:198.51.100.1", "0.0.0.0/0"),
        (WIDE, "ip:2001:db8:0:1::/64", "2001:db8:0:1::/64"),
        (WIDE, "ip:2001:db8:0:2::/64", "2001:db8::/32"),
        (WIDE, "ip:2a00::/64", "::/0"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_find_takes_the_key_itself_or_the_longest_prefix(texts, key, found, order):
    override = made_of(*texts[::order]).find(key, 0)
    assert (override and override.policy.name) == found


def test_find_passes_over_those_that_have_ended():
    some = made_of(*WIDE, "user:42", ended=["203.0.113.9", "203.0.0.0/16", "user:42"])
    assert some.find(KEY, 0).policy.name == "203.0.113.0/24"
    assert some.find("ip:203.0.112.8", 0).policy.name == "0.0.0.0/0"
    assert some.find("user:42", 0) is None


@pytest.mark.parametrize(("now", "counts"), [(99, True), (100, False), (101, False)])
def test_find_counts_an_override_until_the_instant_of_its_end(now, counts):
    some = Overrides([("k", Override("exempt", ends_at=100))])
    assert (some.find("k", now) is not None) == counts


class CountingDict(dict):
    looks = 0

    def get(self, *args):
        type(self).looks += 1
        return super().get(*args)


def test_find_looks_as_often_among_thousands_of_networks_as_among_a_few():
    def looks(thousands):
        some = made_of(*(f"10.{i // 256}.{i % 256}.0/24" for i in range(thousands * 1_000)), "10.0.0.0/8")
        some._networks = [(*kind, CountingDict(members)) for *kind, members in some._networks]
        CountingDict.looks = 0
        assert some.find("ip:10.0.7.7", 0).policy.name == "10.0.7.0/24"
        assert some.find("ip:10.255.7.7", 0).policy.name == "10.0.0.0/8"
        return CountingDict.looks

    assert looks(1) == looks(5) == 3
