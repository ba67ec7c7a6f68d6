import itertools

import pytest
from django.test import override_settings
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratelimit_app import algorithms, limiter
from ratelimit_app.limits import LiveLimit
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import MAX_NAME_LENGTH, MAX_WINDOW, Policy
from ratelimit_app.stores import row_key

#: Whatever a database may mix up: case, accents, blanks, control characters, what is long or reserved.
KEYS = [
    "bob",
    "Bob",
    "BOB",
    "böb",
    "bo\u0308b",
    "bób",
    "bob ",
    " bob",
    "bob\t",
    "bob\n",
    "bob\x00",
    "bob\x00x",
]
KEYS += ["", " ", "\x00", "\ud800", "\udfff", "\ufffd", "😀", "😁", "ß", "ss", "ﬁ", "fi", "İ", "i", "\u0131"]
KEYS += ["a" * length for length in (99, 100, 101, 120, 121, 255, 256, 10_000)]
KEYS += ["a" * 300 + "1", "a" * 300 + "2", "a" * 300 + "B", "a" * 300 + "b"]
KEYS += [
    "a:b",
    "a%3Ab",
    "a%b",
    "a_b",
    "a\\b",
    "a'b",
    'a"b',
    "#",
    "#a",
    "##a",
    "#" + "0" * 64,
    "{}",
    "%s",
    "%(key)s",
]


def key_for(key="k", space="login@code", algorithm="fixed_window", window="60"):
    return row_key(space, algorithm, window, key)


def test_ordinary_key_is_stored_as_it_is():
    assert key_for("ip:203.0.113.9") == "login@code:fixed_window:60:ip:203.0.113.9"


@pytest.mark.parametrize("key", ["a" * 101, "böb", "bob ", "bob\x00", "\ud800", "#a", "a b"])
def test_long_or_odd_key_is_stored_as_a_keyed_hash(key):
    kept = key_for(key)
    with override_settings(SECRET_KEY="another"):
        assert key_for(key) != kept
    assert kept.startswith("login@code:fixed_window:60:#")
    assert len(kept.rpartition("#")[2]) == 64
    assert key not in kept


def test_every_key_has_a_text_of_its_own():
    assert len({key_for(key) for key in KEYS}) == len(set(KEYS)) == len(KEYS)


ODD_TEXTS = st.text(st.sampled_from("aAéàª:#%@ \x00\ud800😀/")) | st.sampled_from(KEYS)
ANY_TEXT = st.text(st.characters(exclude_categories=[])) | ODD_TEXTS
SPACES = st.text(st.characters(codec="utf-8")) | st.text(st.sampled_from("aA:#%@ 1"), max_size=100)
WINDOWS = st.sampled_from(["60", "3600", "0.5", "day", "month"])
PARTS = st.tuples(SPACES, st.sampled_from(["fixed_window", "token_bucket"]), WINDOWS, ANY_TEXT)


@settings(deadline=None, max_examples=500)
@given(PARTS, PARTS)
@example(("a", "fixed_window", "60", "b:c"), ("a:b", "fixed_window", "60", "c"))
@example(("api", "fixed_window", "60", "1k"), ("api1", "fixed_window", "60", "k"))
@example(("a@1", "fixed_window", "60", "k"), ("a", "fixed_window", "60", "@1k"))
@example(("a", "fixed_window", "60", "fixed_window:60:k"), ("a:fixed_window:60", "fixed_window", "60", "k"))
@example(("#a", "fixed_window", "60", "k"), ("%23a", "fixed_window", "60", "k"))
def test_texts_are_the_same_only_for_the_same_parts(one, other):
    assert (row_key(*one) == row_key(*other)) == (one == other)


@settings(deadline=None)
@given(SPACES, SPACES, ANY_TEXT, ANY_TEXT)
def test_spaces_and_keys_are_never_mixed_up(space, other_space, key, other_key):
    pairs = {(space, key), (space, other_key), (other_space, key), (other_space, other_key)}
    assert len({key_for(key, space) for space, key in pairs}) == len(pairs)


@settings(deadline=None)
@given(PARTS)
@example(
    (":" * MAX_NAME_LENGTH + "@9223372036854775807", "sliding_window", str(MAX_WINDOW - 0.000_001), "a" * 100)
)
@example(("a" * 80, "sliding_window", "3155759999.999999", "a" * 100))
def test_text_is_printable_ascii_that_fits_the_column(parts):
    text = row_key(*parts)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert len(text) <= Counter._meta.get_field("key").max_length


SPACES_OF_A_NAME = list(itertools.combinations(["api@code", "api@1", "api@2", "api@policy"], 2))


# On the database under test -----------------------------------------------------------------------

ONE = Policy.parse("1/min", name="one")


def admitted(limit, key):
    return limiter.consume(limit, key).allowed


@pytest.mark.django_db
def test_every_key_has_a_row_of_its_own(clock):
    assert [admitted(ONE, key) for key in KEYS] == [True] * len(KEYS)
    assert [admitted(ONE, key) for key in KEYS] == [False] * len(KEYS)
    assert {row.count for row in Counter.objects.all()} == {1}
    assert Counter.objects.count() == len(KEYS)


@pytest.mark.django_db
def test_stored_text_is_the_one_that_was_meant(clock):
    for key in KEYS:
        limiter.consume(ONE, key)
    expected = {row_key("one@policy", "fixed_window", "60", key) for key in KEYS}
    assert set(Counter.objects.values_list("key", flat=True)) == expected


#: The longest of each part that is kept as it is; anything longer is kept as a hash, which is shorter.
LONGEST = {"name": "a" * 60, "window": "599999999.999999", "key": "k" * 99}


@pytest.mark.django_db
@pytest.mark.parametrize("algorithm", algorithms.names())
def test_largest_text_is_stored_whole_and_fits(clock, algorithm):
    policy = Policy(LONGEST["name"], algorithm, quota=1, window=float(LONGEST["window"]))
    limit = LiveLimit(policy, space=f"{LONGEST['name']}@{2**63 - 1}")
    keys = [LONGEST["key"] + end for end in "aAb"]
    assert [admitted(limit, key) for key in [*keys, *keys]] == [True] * 3 + [False] * 3
    stored = {row_key(limit.space, algorithm, LONGEST["window"], key) for key in keys}
    assert set(Counter.objects.values_list("key", flat=True)) == stored
    assert set(LoggedCall.objects.values_list("key", flat=True)) <= stored
    assert {len(key) for key in stored} == {80 + 1 + len(algorithm) + 1 + len(LONGEST["window"]) + 1 + 100}
    assert max(map(len, stored)) <= Counter._meta.get_field("key").max_length


@pytest.mark.django_db
@pytest.mark.parametrize("more", ["name", "key", "both"])
def test_anything_longer_is_stored_in_less(clock, more):
    name = "~" * MAX_NAME_LENGTH if more != "key" else LONGEST["name"]
    key = LONGEST["key"] + ("a" * 10**6 if more != "name" else "")
    limiter.consume(Policy.parse("1/min", name=name), key)
    (stored,) = Counter.objects.values_list("key", flat=True)
    assert len(stored) < 80 + 1 + len("fixed_window:60:") + 100


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("api", "1k"), ("api1", "k")),
        (("a", "k"), ("A", "k")),
        (("a", "k"), ("a ", "k")),
        (("a@policy", "k"), ("a", "@policyk")),
    ],
    ids=str,
)
def test_names_and_keys_that_look_alike_together_have_rows_of_their_own(clock, first, second):
    assert all(admitted(Policy.parse("1/min", name=name), key) for name, key in (first, second))


@pytest.mark.django_db
def test_windows_of_different_lengths_have_rows_of_their_own(clock):
    policies = [
        Policy.parse(rate, name="api") for rate in ("1/min", "1/h", "1/day", "1/calendar day", "1/month")
    ]
    assert all(admitted(policy, "k") for policy in policies)
    assert Counter.objects.count() == len(policies)


@pytest.mark.django_db
@pytest.mark.parametrize(("first", "second"), SPACES_OF_A_NAME)
def test_limits_of_different_spaces_have_rows_of_their_own(clock, first, second):
    limits = [LiveLimit(Policy.parse("1/min", name="api"), space=space) for space in (first, second)]
    assert all(admitted(limit, "k") for limit in limits)


@pytest.mark.django_db
@pytest.mark.parametrize("key", ["ip:203.0.113.9", "#a", "bob\x00", "\ud800", "a" * 10_000])
def test_reset_and_refund_find_the_row_of_any_key(clock, key):
    policy = Policy.parse("2/min", name="two")
    limiter.consume(policy, key, cost=2)
    limiter.refund(policy, key)
    assert limiter.peek(policy, key).used == 1
    limiter.reset(policy, key)
    assert Counter.objects.count() == 0
