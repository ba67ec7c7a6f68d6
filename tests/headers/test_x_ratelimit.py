import pytest

from ratelimit_app.decision import Decision
from ratelimit_app.headers import x_ratelimit
from ratelimit_app.policy import Policy
from tests.algorithms.bench import Bench, ask
from tests.conftest import NOON


def decision(name="api", *, remaining=3, reset_after=17.0, at=NOON, **fields):
    policy = Policy(name, "fixed_window", 100, 60)
    figures = {"remaining": remaining, "reset_after": reset_after, "at": at}
    return Decision(fields.pop("allowed", True), name, "k", 1, 100, policy=policy, **figures, **fields)


def test_fields_are_those_that_everyone_sends():
    assert x_ratelimit.fields([decision()]) == {
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "3",
        "X-RateLimit-Reset": str(NOON + 17),
    }


def test_tightest_of_several_limits_is_shown():
    parts = [
        decision("a", remaining=9),
        decision("b", remaining=2, reset_after=5),
        decision("c", remaining=8),
    ]
    assert x_ratelimit.fields(parts) == x_ratelimit.fields([parts[1]])


def test_limit_that_refuses_is_shown_though_another_has_less_left():
    parts = [decision("a", remaining=1), decision("b", remaining=2, allowed=False, retry_after=9.0)]
    assert x_ratelimit.fields(parts) == x_ratelimit.fields([parts[1]])


@pytest.mark.parametrize(
    ("at", "reset_after", "reset"),
    [(0.25, 17.0, 18), (0.1, 59.9, 60), (0.000_001, 59.999_999, 60), (0.000_001, 60, 61), (0, 0, 0)],
)
def test_reset_is_an_instant_rounded_up_to_whole_seconds(at, reset_after, reset):
    fields = x_ratelimit.fields([decision(at=NOON + at, reset_after=reset_after)])
    assert fields["X-RateLimit-Reset"] == str(NOON + reset)


def test_limit_of_a_bucket_is_what_can_remain_at_most():
    policy = Policy.parse("60/min", algorithm="token_bucket", burst=90)
    fields = x_ratelimit.fields([ask(Bench(), [policy], 0)])
    assert (fields["X-RateLimit-Limit"], fields["X-RateLimit-Remaining"]) == ("90", "89")


@pytest.mark.parametrize("decisions", [[], [Decision(True, "nope", "k", 1)]])
def test_fields_of_no_limit_are_none(decisions):
    assert x_ratelimit.fields(decisions) == {}
