"""Any key, name and rate in code."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratelimit_app import limiter
from ratelimit_app.models import Counter
from ratelimit_app.policy import Policy
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
from tests.fuzz.examples import fuzzed, pairs, shaped, texts

pytestmark = pytest.mark.django_db

#: Byte strings too, as the texts that the usual ways of decoding make of them.
BYTES = st.binary(max_size=300)
DECODED = BYTES.map(lambda octets: octets.decode("latin-1")) | BYTES.map(
    lambda octets: octets.decode("utf-8", "surrogateescape")
)
KEYS = pairs | st.tuples(DECODED, DECODED)
NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)
RATES = shaped(
    "1", "5", "10", "/", " ", "per", "s", "sec", "min", "hour", "day", "calendar day", "month", "2"
)


@fuzzed
@given(NAMES, NAMES, KEYS)
@example("a", "a", ("b", "b "))
@example("a", "a", ("\x00", ""))
@example("a:b", "a", ("c", "b:c"))
def test_different_keys_and_names_share_no_row(name, other, keys):
    key, other_key = keys
    Counter.objects.all().delete()
    asked = dict.fromkeys([(name, key), (name, other_key), (other, key), (other, other_key)])
    with frozen_time(NOON):
        for way, thing in asked:
            policy = Policy.parse("1/min", name=way)
            assert [limiter.consume(policy, thing).allowed for _ in range(2)] == [True, False]
    rows = Counter.objects.values_list("key", "count")
    assert [count for _, count in rows] == [1] * len(asked)
    assert all(re.fullmatch(r"[!-~]{1,255}", stored) for stored, _ in rows)


@fuzzed
@given(RATES | texts)
def test_any_rate_is_a_policy_or_an_error(rate):
    try:
        policy = Policy.parse(rate)
    except ValueError:
        return
    assert policy.quota >= 1
    assert Policy.parse(rate) == policy
    with frozen_time(NOON):
        assert limiter.consume(policy, "k").allowed
    Counter.objects.all().delete()
