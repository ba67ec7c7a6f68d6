import dataclasses
import decimal
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratelimit_app.policy import MAX_QUOTA, MAX_WINDOW, Policy
from ratelimit_app.windows import CALENDAR_UNITS, MICROSECONDS


def short(value):
    """Name a case of a test by the start of it."""
    return ascii(value)[:30]


RATES = [
    ("5/s", 5, 1),
    ("3/min", 3, 60),
    ("100/min", 100, 60),
    ("10/hour", 10, 3_600),
    ("100/h", 100, 3_600),
    ("100/day", 100, 86_400),
    ("5/day", 5, 86_400),
    ("800/d", 800, 86_400),
    ("1/10s", 1, 10),
    ("100/10s", 100, 10),
    ("10/15m", 10, 900),
    ("400/10m", 400, 600),
    ("30/7d", 30, 604_800),
    ("5/w", 5, 604_800),
    ("5/week", 5, 604_800),
    ("1/2 day", 1, 172_800),
    ("1 per 3 hour", 1, 10_800),
    ("10 per 2 minutes", 10, 120),
    ("1/month", 1, "month"),
    ("3/month", 3, "month"),
    ("5/month", 5, "month"),
    ("5/year", 5, "year"),
    ("5/calendar day", 5, "day"),
    ("5 per calendar week", 5, "week"),
    ("5/calendar month", 5, "month"),
    (" 5 / m ", 5, 60),
    ("999999999999999/s", MAX_QUOTA, 1),
    ("1/3155760000s", 1, MAX_WINDOW),
]


@pytest.mark.parametrize(("rate", "quota", "window"), RATES)
def test_rate_gives_the_exact_quota_and_window(rate, quota, window):
    policy = Policy.parse(rate)
    assert (policy.quota, policy.window) == (quota, window)
    assert type(policy.quota) is int


BAD_RATES = [
    "abc",
    "10",
    "1/",
    "/m",
    "5/ ",
    "5m",
    "5 per",
    "5perm",
    "per m",
    "-1/m",
    "+1/m",
    "5/-1m",
    "1e3/m",
    "1.5/m",
    "1,000/m",
    "5/1.5m",
    "5/fortnight",
    "1 per millenium",
    "5/mm",
    "5/calendar",
    "5/calendar hour",
    "5/2 month",
    "5/0 month",
    "٣/m",
    "5/٣m",
    "5/m/s",
    "5//m",
    "5/m 6/h",
    "5/m;",
    "5/m\n6/h",
    "5/m\x00",
    "\ud800/m",
    "",
    " ",
    "9" * 16 + "/m",
    "9" * 5_000 + "/m",
    "5/" + "9" * 11 + "s",
    "5/" + "9" * 5_000 + "s",
    None,
    b"5/m",
    5,
    True,
    ("5", "m"),
]


@pytest.mark.parametrize("rate", BAD_RATES, ids=short)
def test_rate_that_is_not_understood_whole_is_an_error_that_names_it(rate):
    with pytest.raises(ValueError, match=r"^rate: ") as caught:
        Policy.parse(rate)
    assert repr(rate) in str(caught.value)


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("0/m", r"^quota: .* got 0$"),
        ("00/m", r"^quota: .* got 0$"),
        ("5/0s", r"^window: .* got 0$"),
        ("5/0 days", r"^window: .* got 0$"),
        ("1/3155760001s", r"^window: .* got 3155760001$"),
        ("5/9999999999d", r"^window: .* got 863999999913600$"),
    ],
)
def test_rate_that_makes_no_policy_is_an_error_that_names_the_number(rate, message):
    with pytest.raises(ValueError, match=message):
        Policy.parse(rate)


NUMBERS = ["0", "5", "60", "9" * 15, "9" * 16, "٣", "-", ".", "e"]
BETWEEN = ["/", " per ", " ", "\t", "\n", "\x00"]
UNITS = ["s", "min", "hours", "d", "week", "month", "calendar ", "calendar month", "year", "fortnight"]
PIECES = st.sampled_from(NUMBERS + BETWEEN + UNITS)


@settings(deadline=None)
@given(st.text() | st.lists(PIECES, max_size=6).map("".join))
def test_parse_of_any_text_returns_a_policy_or_raises_value_error(rate):
    try:
        policy = Policy.parse(rate)
    except ValueError:
        return
    assert 1 <= policy.quota <= MAX_QUOTA
    assert policy.window in CALENDAR_UNITS or 1 <= policy.window <= MAX_WINDOW


@settings(deadline=None)
@given(
    quota=st.integers(1, MAX_QUOTA),
    separator=st.sampled_from(["/", " / ", " per "]),
    times=st.integers(1, 36_525),
    unit=st.sampled_from([("s", 1), ("secs", 1), ("min", 60), (" hours", 3_600), ("day", 86_400)]),
)
def test_parse_reads_every_quota_and_multiple(quota, separator, times, unit):
    name, seconds = unit
    policy = Policy.parse(f"{quota}{separator}{times}{name}")
    assert (policy.quota, policy.window) == (quota, times * seconds)


def test_name_defaults_to_the_rate_as_written():
    assert Policy.parse(" 5/min ").name == "5/min"


def test_parse_passes_the_name_and_the_algorithm_on():
    assert Policy.parse("5/min", name="api", algorithm="fixed_window") == Policy("api", "fixed_window", 5, 60)


def policy(**fields):
    return Policy(**({"name": "api", "algorithm": "fixed_window", "quota": 5, "window": 60} | fields))


NO_NUMBERS = [None, True, False, "5", "9" * 5_000, b"5", [], {}, 1j, decimal.Decimal(5), math.nan, math.inf]


@pytest.mark.parametrize(
    "value", [*NO_NUMBERS, 0, -1, 5.0, 2.5, -math.inf, MAX_QUOTA + 1, 10**400], ids=short
)
def test_quota_that_is_no_whole_number_in_range_is_an_error(value):
    with pytest.raises(ValueError, match=r"^quota: ") as caught:
        policy(quota=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [value for value in NO_NUMBERS if value is not None] + [0, -1, 5.0, MAX_QUOTA + 1, 10**400],
    ids=short,
)
def test_burst_that_is_no_whole_number_in_range_is_an_error(value):
    with pytest.raises(ValueError, match=r"^burst: ") as caught:
        policy(burst=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [*NO_NUMBERS, 0, 0.0, -1, -0.5, -math.inf, 0.000_000_9, MAX_WINDOW + 1, 1e300, 10**400, "fortnight", ""],
    ids=short,
)
def test_window_that_is_no_length_in_range_is_an_error(value):
    with pytest.raises(ValueError, match=r"^window: ") as caught:
        policy(window=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", ["quota", "burst", "window"])
def test_number_of_too_many_digits_to_be_written_is_an_error_that_names_the_field(field):
    with pytest.raises(ValueError, match=f"^{field}: "):
        policy(**{field: 10**5_000})


@pytest.mark.parametrize(
    "value", ["", "a" * 65, "é", "a\n", "a\x00", "a\x7f", "\ud800", None, b"api", 5, True, []], ids=short
)
def test_name_that_is_not_short_printable_ascii_is_an_error(value):
    with pytest.raises(ValueError, match=r"^name: ") as caught:
        policy(name=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", ["a", "a" * 64, "a b", '"quoted"', "back\\slash", "~", "a:b", "#a", "5/m"])
def test_name_may_be_any_short_printable_ascii(value):
    assert policy(name=value).name == value


@pytest.mark.parametrize(
    "value",
    ["", "nope", "Fixed_Window", "__init__", "../policy", "fixed_window.", None, b"fixed_window", 5, [], {}],
    ids=short,
)
def test_algorithm_that_does_not_exist_is_an_error_that_lists_those_that_do(value):
    with pytest.raises(ValueError, match=r"^algorithm: .*fixed_window") as caught:
        policy(algorithm=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("window", [1, 0.5, 0.000_001, 60.0, MAX_WINDOW, *CALENDAR_UNITS])
def test_window_may_be_seconds_or_a_calendar_unit(window):
    assert policy(window=window).window == window


def test_policy_is_a_frozen_value():
    assert policy() == policy()
    assert hash(policy()) == hash(policy())
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy().quota = 6


@pytest.mark.parametrize(
    ("window", "text"),
    [(60, "60"), (60.0, "60"), (0.5, "0.5"), (0.1, "0.1"), (MAX_WINDOW, "3155760000"), ("month", "month")],
)
def test_window_text_is_one_word(window, text):
    assert policy(window=window).window_text == text


@settings(deadline=None)
@given(*[st.integers(1, MAX_WINDOW * MICROSECONDS)] * 2)
@example(1, 2)
@example(1_000_000_000 * MICROSECONDS, 1_000_000_000 * MICROSECONDS + 1)
@example(MAX_WINDOW * MICROSECONDS - 2, MAX_WINDOW * MICROSECONDS - 1)
def test_window_text_is_the_same_only_for_the_same_window(one, other):
    one, other = one / MICROSECONDS, other / MICROSECONDS
    texts = policy(window=one).window_text, policy(window=other).window_text
    assert (texts[0] == texts[1]) == (one == other)
    assert not any(set(text) & set(" :") for text in texts)
