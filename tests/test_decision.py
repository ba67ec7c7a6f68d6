import dataclasses

import pytest

from ratelimit_app.decision import Decision, combine


def decision(limit="api", *, allowed=True, **fields):
    return Decision(allowed, limit, "k", 1, **fields)


def refused(limit="api", retry_after=1.0, **fields):
    return decision(limit, allowed=False, retry_after=retry_after, **fields)


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        (0.000_001, 1),
        (0.001, 1),
        (0.7, 1),
        (5 / 7, 1),
        (1.0, 1),
        (1.000_001, 2),
        (1.8, 2),
        (15.0, 15),
        (60.0, 60),
        (None, None),
    ],
)
def test_retry_after_seconds_of_a_refusal_round_up_to_at_least_one(wait, seconds):
    assert refused(retry_after=wait).retry_after_seconds == seconds


def test_retry_after_seconds_of_an_allowed_call_are_none():
    assert decision().retry_after_seconds is None


def test_parts_of_a_single_decision_are_itself():
    alone = decision()
    assert alone.parts == (alone,)


def test_combine_of_one_decision_is_that_decision():
    alone = refused()
    assert combine([alone]) is alone


COMBINATIONS = {
    "one refuses": ([decision("a", remaining=0), refused("b", remaining=5)], "b"),
    "two refuse: the longest wait": ([refused("a", 1.0), refused("b", 59.0), refused("c", 2.0)], "b"),
    "waiting never helps": ([refused("a", 59.0), refused("b", None)], "b"),
    "same wait: the fewest left": ([refused("a", 1.0, remaining=3), refused("b", 1.0, remaining=2)], "b"),
    "none refuses: the fewest left": ([decision("a", remaining=4), decision("b", remaining=3)], "b"),
    "one is not limited": ([decision("a"), decision("b", remaining=999)], "b"),
    "one in shadow mode": ([decision("a", remaining=0, shadow=True), decision("b", remaining=5)], "b"),
    "two in shadow mode": (
        [decision("a", remaining=5, shadow=True), decision("b", remaining=0, shadow=True)],
        "b",
    ),
    "all alike: the first": ([decision("a", remaining=3), decision("b", remaining=3)], "a"),
}


@pytest.mark.parametrize(("parts", "speaker"), COMBINATIONS.values(), ids=COMBINATIONS)
def test_tightest_limit_speaks_for_a_combination(parts, speaker):
    combined = combine(parts)
    spoken = next(part for part in parts if part.limit == speaker)
    assert combined == dataclasses.replace(spoken, decisions=tuple(parts))


@pytest.mark.parametrize("parts", [case[0] for case in COMBINATIONS.values()], ids=COMBINATIONS)
def test_combination_is_allowed_only_if_every_part_is(parts):
    assert combine(parts).allowed == all(part.allowed for part in parts)


def test_parts_of_a_combination_keep_the_order_given():
    parts = (decision("a", remaining=2), refused("b"), decision("c", remaining=1))
    assert combine(parts).parts == parts


def test_decision_is_a_frozen_value():
    with pytest.raises(dataclasses.FrozenInstanceError):
        decision().allowed = False
