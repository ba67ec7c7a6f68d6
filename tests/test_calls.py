import dataclasses

import pytest

from ratelimit_app import calls
from ratelimit_app.limits import LiveLimit
from ratelimit_app.policy import MAX_QUOTA, Policy
from ratelimit_app.stores import Outcome
from ratelimit_app.stores.rows import MAX_COUNT
from tests.conftest import NOON

NOW = NOON * 1_000_000 + 12_500_000


def limit(rate="3/min", *, space="a@1", **fields):
    return LiveLimit(Policy.parse(rate, name="a"), space=space, **fields)


def plan(rate="3/min", *, key="k", cost=1, now=NOW, **fields):
    return calls.plan(limit(rate, **fields), key, cost, now)


def test_plan_is_the_row_change_of_the_algorithm():
    call = plan(cost=2)
    assert dataclasses.asdict(call.advance) == {
        "row": {"key": call.row.key, "window_start": NOON * 1_000_000},
        "floor": 0,
        "amount": 2,
        "ceiling": 3,
        "expires_at": (NOON + 120) * 1_000_000,
        "count_denied": False,
        "weighed": None,
        "logged": None,
        "most": MAX_COUNT,
    }


def test_plan_carries_count_denied():
    assert plan(count_denied=True).advance.count_denied


def test_plan_of_another_quota_keeps_the_row():
    assert plan("3/min").row == plan("9/min").row == plan("9/60s").row


@pytest.mark.parametrize(
    "other",
    [{"rate": "3/h"}, {"key": "K"}, {"space": "a@2"}, {"now": NOW + 60_000_000}],
    ids=["window", "key", "space", "later"],
)
def test_plan_of_another_kind_has_a_row_of_its_own(other):
    assert plan(**other).row != plan().row


def test_plan_of_another_zone_has_windows_of_its_own(settings):
    starts = set()
    for zone in ("UTC", "America/New_York", "Asia/Shanghai"):
        settings.RATELIMIT_TIME_ZONE = zone
        starts.add(plan("5/calendar day").row.window_start)
    assert len(starts) == 3


@pytest.mark.parametrize(("cost", "amount"), [(MAX_QUOTA, MAX_QUOTA), (10**30, MAX_QUOTA + 1)])
def test_plan_of_a_cost_above_any_quota_fits_the_column(cost, amount):
    call = plan(f"{MAX_QUOTA}/min", cost=cost)
    assert (call.cost, call.advance.amount) == (cost, amount)


@pytest.mark.parametrize(
    ("mode", "outcome", "allowed", "over_quota", "remaining", "retry_after"),
    [
        ("enforce", Outcome(True, 1), True, False, 2, 0.0),
        ("enforce", Outcome(True, 3), True, False, 0, 0.0),
        ("enforce", Outcome(False, 3), False, True, 0, 47.5),
        ("enforce", Outcome(False, 7), False, True, 0, 47.5),
        ("shadow", Outcome(True, 1), True, False, 2, 0.0),
        ("shadow", Outcome(False, 3), True, True, 0, 0.0),
    ],
)
def test_judge_tells_what_an_outcome_means(mode, outcome, allowed, over_quota, remaining, retry_after):
    decision = calls.judge(plan(mode=mode), outcome)
    assert (decision.allowed, decision.over_quota, decision.shadow) == (
        allowed,
        over_quota,
        mode == "shadow",
    )
    assert (decision.remaining, decision.retry_after) == (remaining, retry_after)
    assert (decision.used, decision.reset_after, decision.quota) == (outcome.count, 47.5, 3)
    assert (decision.limit, decision.key, decision.cost) == ("a", "k", 1)
    assert decision.policy == Policy.parse("3/min", name="a")


def test_judge_of_a_cost_above_the_quota_says_never():
    assert calls.judge(plan(cost=4), Outcome(False, 0)).retry_after is None


def test_judge_in_shadow_of_a_cost_above_the_quota_still_allows():
    decision = calls.judge(plan(cost=4, mode="shadow"), Outcome(False, 0))
    assert (decision.allowed, decision.over_quota, decision.retry_after) == (True, True, 0.0)
