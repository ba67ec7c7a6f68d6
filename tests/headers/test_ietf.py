import http_sf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratelimit_app.decision import Decision
from ratelimit_app.headers import ietf
from ratelimit_app.policy import MAX_QUOTA, Policy
from tests.algorithms.bench import Bench, ask

NAMES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=64)


def decision(name="api", quota=100, window=60, **fields):
    policy = Policy(name, "fixed_window", quota, window)
    return Decision(True, name, "k", 1, quota, policy=policy, **({"remaining": quota} | fields))


def parse(decisions):
    """Read both fields as a client does: name by name with their parameters."""
    return {
        field: http_sf.parse(value.encode("ascii"), tltype="list")
        for field, value in ietf.fields(decisions).items()
    }


def test_fields_of_one_limit_are_as_published():
    fields = ietf.fields([decision(remaining=42, reset_after=58.0, more_after=17.0)])
    assert fields == {"RateLimit-Policy": '"api";q=100;w=60', "RateLimit": '"api";r=42;t=17'}


def test_fields_of_several_limits_are_lists_in_their_order():
    fields = ietf.fields(
        [decision("b", remaining=1, more_after=0.5), decision("a", 5, 86_400, more_after=9.0)]
    )
    assert fields == {
        "RateLimit-Policy": '"b";q=100;w=60, "a";q=5;w=86400',
        "RateLimit": '"b";r=1;t=1, "a";r=5;t=9',
    }


@pytest.mark.parametrize("decisions", [[], [Decision(True, "nope", "k", 1)]])
def test_fields_of_no_limit_are_none(decisions):
    assert ietf.fields(decisions) == {}


def test_decision_without_a_policy_has_no_place_in_the_fields():
    assert ietf.fields([Decision(True, "nope", "k", 1), decision()]) == ietf.fields([decision()])


@pytest.mark.parametrize(("more_after", "seconds"), [(0.000_001, 1), (1.0, 1), (58.2, 59), (59.999, 60)])
def test_time_until_more_is_rounded_up_to_whole_seconds(more_after, seconds):
    assert ietf.fields([decision(more_after=more_after)])["RateLimit"] == f'"api";r=100;t={seconds}'


def test_time_until_more_is_left_out_where_all_is_there():
    assert ietf.fields([decision(more_after=None)])["RateLimit"] == '"api";r=100'


@pytest.mark.parametrize(
    ("algorithm", "t"),
    [("fixed_window", 40), ("sliding_window", 60), ("sliding_log", 40), ("token_bucket", 5)],
)
def test_effective_window_is_until_more_can_be_had_and_not_until_all_can(algorithm, t):
    bench, policy = Bench(), Policy.parse("12/min", name="p", algorithm=algorithm)
    for second in (0, 20, 20):
        part = ask(bench, [policy], second)
    assert http_sf.parse(ietf.fields([part])["RateLimit"].encode(), tltype="list") == [
        ("p", {"r": part.remaining, "t": t})
    ]
    assert (part.more_after == part.reset_after) == (algorithm == "fixed_window")


@pytest.mark.parametrize("window", ["day", "month", 0.5, 1.5])
def test_window_that_is_no_whole_number_of_seconds_is_left_out(window):
    assert ietf.fields([decision(window=window)])["RateLimit-Policy"] == '"api";q=100'


@pytest.mark.parametrize(("window", "seconds"), [(1, 1), (60.0, 60), (3_155_760_000, 3_155_760_000)])
def test_window_of_whole_seconds_is_an_integer(window, seconds):
    assert parse([decision(window=window)])["RateLimit-Policy"] == [("api", {"q": 100, "w": seconds})]


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, st.integers(1, MAX_QUOTA)), min_size=1, max_size=4))
def test_any_name_and_quota_survive_the_structured_fields(limits):
    fields = parse([decision(name, quota) for name, quota in limits])
    assert fields["RateLimit-Policy"] == [(name, {"q": quota, "w": 60}) for name, quota in limits]
    assert fields["RateLimit"] == [(name, {"r": quota}) for name, quota in limits]
