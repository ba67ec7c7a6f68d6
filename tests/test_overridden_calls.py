"""Calls of keys that a limit has an override for."""

import contextlib

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext
from model_bakery import baker

from ratelimit_app import algorithms, limiter, snapshots
from ratelimit_app.decision import Decision
from ratelimit_app.models import Counter, Limit, LimitOverride
from ratelimit_app.policy import Policy
from ratelimit_app.signals import over_quota
from ratelimit_app.windows import to_datetime

pytestmark = pytest.mark.django_db

KEY = "ip:203.0.113.9"


@pytest.fixture
def limit(clock, settings):
    settings.RATELIMIT_LIMITS = {"other": "100/min"}
    return baker.make(Limit, name="login", rate="3/min")


@pytest.fixture
def heard():
    decisions = []

    def hear(decision, **kwargs):
        decisions.append(decision)

    over_quota.connect(hear)
    yield decisions
    over_quota.disconnect(hear)


def override(limit, effect="rate", key=KEY, **fields):
    return LimitOverride.objects.create(limit=limit, effect=effect, key=key, reason="because", **fields)


def take(times=1, key=KEY, **keywords):
    return [limiter.consume("login", key, **keywords) for _ in range(times)][-1]


def used(name="login", key=KEY):
    return limiter.peek(name, key).used


def test_exempt_key_is_allowed_and_not_counted(limit, heard):
    override(limit, "exempt")
    assert take(9) == Decision(True, "login", KEY, 1)
    assert take(cost=10**9) == limiter.peek("login", KEY, cost=10**9) == Decision(True, "login", KEY, 10**9)
    assert not Counter.objects.exists()
    assert heard == []


def test_exempt_key_leaves_the_others_limited(limit):
    override(limit, "exempt")
    assert not take(4, "ip:198.51.100.1").allowed


def test_exempt_key_is_limited_by_the_other_limits(limit):
    override(limit, "exempt")
    decision = limiter.consume_all({"login": KEY, "other": KEY})
    assert [(part.limit, part.remaining) for part in decision.parts] == [("login", None), ("other", 99)]
    assert (decision.limit, decision.quota) == ("other", 100)


@pytest.mark.parametrize(("seconds", "wait"), [(None, None), (90, 90.0), (0.5, 0.5)])
def test_blocked_key_is_refused_until_the_end(limit, clock, heard, seconds, wait):
    override(limit, "blocked", ends_at=seconds and to_datetime(clock.read() + round(seconds * 1_000_000)))
    decision = take()
    assert decision == limiter.peek("login", KEY)
    assert decision == Decision(
        allowed=False,
        limit="login",
        key=KEY,
        cost=1,
        quota=3,
        remaining=0,
        reset_after=wait or 0.0,
        retry_after=wait,
        policy=limit.policy(),
        over_quota=True,
        more_after=wait,
        at=clock.now,
    )
    assert heard == [decision]
    assert not Counter.objects.exists()
    clock.advance(wait or 10**6)
    assert take().allowed == (wait is not None)


def test_blocked_key_in_shadow_mode_is_let_through_and_reported(limit, heard):
    Limit.objects.update(mode="shadow")
    override(limit, "blocked")
    decision = take()
    assert (decision.allowed, decision.over_quota, decision.shadow) == (True, True, True)
    assert (decision.remaining, decision.retry_after) == (0, 0.0)
    assert heard == [decision]
    assert limiter.consume_all({"login": KEY, "other": KEY}).allowed
    assert used("other") == 1


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("algorithm", algorithms.names())
def test_blocked_key_takes_nothing_from_the_other_limits(limit, order, algorithm, heard):
    baker.make(
        Limit, name="third", rate="2/min", algorithm=algorithm, count_denied=not algorithms.holds(algorithm)
    )
    override(limit, "blocked")
    keys = dict([("login", KEY), ("other", KEY), ("third", KEY)][::order])
    for _ in range(3):
        decision = limiter.consume_all(keys)
        assert (decision.allowed, decision.limit, decision.retry_after) == (False, "login", None)
        assert decision == limiter.peek_all(keys)
    assert {part.limit: part.remaining for part in decision.parts} == {"login": 0, "other": 100, "third": 2}
    assert [each.limit for each in heard] == ["login"] * 3
    assert not Counter.objects.exists()


def test_limit_that_is_off_blocks_nobody(limit):
    Limit.objects.update(mode="off")
    override(limit, "blocked")
    assert take() == Decision(True, "login", KEY, 1)


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_other_rate_keeps_what_is_used_in_the_same_window(limit, algorithm):
    Limit.objects.update(algorithm=algorithm)
    made = override(limit, rate="5/min", key="ip:203.0.113.0/24")
    decision = take(3)
    assert (decision.limit, decision.quota, decision.remaining, decision.used) == ("login", 5, 2, 3)
    assert decision.policy == Policy.parse("5/min", name="login", algorithm=algorithm)
    assert take(2).allowed
    assert not take().allowed
    made.delete()
    decision = limiter.peek("login", KEY)
    assert (decision.allowed, decision.quota, decision.remaining) == (False, 3, 0)


def test_other_rate_of_another_window_has_a_count_of_its_own(limit):
    take(3)
    override(limit, rate="5/hour")
    assert take().remaining == 4


def test_other_rate_with_a_burst(limit):
    Limit.objects.update(algorithm="token_bucket")
    override(limit, rate="60/min", burst=2)
    assert take(2).allowed
    assert take().retry_after == 1.0


def test_other_rate_takes_the_cost_of_the_limit(limit):
    Limit.objects.update(cost=2)
    override(limit, rate="5/min")
    assert (take().remaining, take().remaining, take().allowed) == (3, 1, False)


def test_other_rate_gives_way_at_its_end_in_one_window(limit, clock):
    override(limit, rate="5/min", ends_at=to_datetime(clock.read() + 10_000_000))
    assert take(5).allowed
    clock.advance(10)
    decision = limiter.peek("login", KEY)
    assert (decision.allowed, decision.quota, decision.used) == (False, 3, 5)


@pytest.mark.parametrize(
    ("effect", "fields", "left"),
    [("rate", {"rate": "5/min"}, 2), ("rate", {"rate": "5/hour"}, 3), ("exempt", {}, 3), ("blocked", {}, 3)],
)
def test_refund_gives_back_what_the_key_takes_now(limit, effect, fields, left):
    take(3)
    made = override(limit, effect, **fields)
    limiter.refund("login", KEY)
    made.delete()
    assert used() == left


@pytest.mark.parametrize(
    ("effect", "fields"),
    [("rate", {"rate": "5/min"}), ("rate", {"rate": "5/hour"}), ("exempt", {}), ("blocked", {})],
)
def test_reset_forgets_by_the_limit_and_by_its_override(limit, effect, fields):
    take(3)
    made = override(limit, effect, **fields)
    take()
    limiter.reset("login", KEY)
    assert not Counter.objects.exists()
    made.delete()
    assert used() == 0


def test_status_view_shows_what_applies(limit, client):
    def shown():
        figures = client.get("/ratelimit/status/", REMOTE_ADDR="203.0.113.9").json()["limits"]
        return [
            (each["quota"], each["remaining"], each["retry_after"])
            for each in figures
            if each["limit"] == "login"
        ]

    made = override(limit, rate="5/min")
    assert shown() == [(5, 5, 0.0)]
    made.effect, made.rate = "blocked", ""
    made.save()
    assert shown() == [(3, 0, None)]
    made.effect = "exempt"
    made.save()
    assert shown() == []


def test_refusal_says_neither_why_nor_whose(limit, client):
    Limit.objects.update(path="^/ping")
    override(limit, "blocked")
    response = client.get("/ping", REMOTE_ADDR="203.0.113.9")
    assert response.status_code == 429
    assert "Retry-After" not in response
    assert response.json() == {
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota exceeded",
        "status": 429,
        "detail": "Too many requests. Trying again does not help.",
        "violated-policies": ["login"],
    }


# What it costs ------------------------------------------------------------------------------------


@contextlib.contextmanager
def statements():
    sent = []
    with (
        CaptureQueriesContext(connections["default"]) as own,
        CaptureQueriesContext(connections["ratelimit"]) as counted,
    ):
        yield sent
    sent.extend(query["sql"] for query in [*own, *counted])


def ask_all(limit):
    """Let a key of each kind ask, and count the statements of each."""
    costs = []
    for key in ["ip:198.51.100.1", "ip:10.0.3.1", "ip:10.1.3.1", "ip:10.2.3.1", "user:42"]:
        with statements() as sent:
            limiter.consume("login", key)
        costs.append(len(sent))
    return costs


@pytest.mark.django_db(transaction=True)
def test_decision_takes_as_many_statements_with_a_thousand_overrides(limit):
    limiter.current_limits()
    assert ask_all(limit) == [1] * 5
    effects = ["rate", "exempt", "blocked"]
    LimitOverride.objects.bulk_create(
        LimitOverride(
            limit=limit,
            key=f"10.{i % 3}.{i // 3}.0/24",
            effect=effects[i % 3],
            rate="" if i % 3 else "5/min",
            reason="many",
        )
        for i in range(768)
    )
    LimitOverride.objects.bulk_create(
        LimitOverride(limit=limit, key=f"user:{i}", rate="5/min", reason="many") for i in range(300)
    )
    limit.save()
    limiter.current_limits()
    assert ask_all(limit) == [1, 1, 0, 0, 1]


# One that is not valid any more -------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        {"rate": ""},
        {"rate": "garbage"},
        {"burst": 3},
        {"effect": "maybe"},
        {"effect": "blocked"},
        {"key": "ip:nobody"},
        {"key": "203.0.113.9/24"},
        {"key": ""},
    ],
    ids=str,
)
def test_override_that_is_not_valid_is_reported_once_and_the_others_stay(limit, caplog, broken):
    bad = override(limit, rate="5/min")
    override(limit, "exempt", key="user:42")
    LimitOverride.objects.filter(pk=bad.pk).update(**broken)
    limit.save()
    assert take().quota == 3
    assert take(key="user:42").quota is None
    limiter.current_limits()
    said = [record for record in caplog.records if "override" in record.message]
    assert [(record.levelname, "'login'" in record.message) for record in said] == [("ERROR", True)]


@pytest.mark.parametrize("edit", [{"cost": 2}, {"algorithm": "fixed_window"}])
def test_override_that_an_edit_of_its_limit_breaks_is_ignored(limit, edit, caplog):
    Limit.objects.update(algorithm="token_bucket")
    override(limit, rate="1/min", burst=1)
    assert take().quota == 1
    Limit.objects.update(**edit)
    snapshots.drop()
    assert take().quota == 3
    assert "is ignored" in caplog.text
