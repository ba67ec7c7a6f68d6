import contextlib
import logging

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext
from model_bakery import baker

from ratelimit_app import algorithms, limiter, signals
from ratelimit_app.decision import Decision
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from tests.conftest import NOON
from tests.outages import outage

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

KEY = "ip:203.0.113.9"
BAD_COSTS = [0, -1, True, False, 1.5, 1.0, "1", b"1", [1]]
BAD_KEYS = [42, None, b"x", ("a",)]

#: Every way to ask with a cost.
ASK = {
    "consume": limiter.consume,
    "peek": limiter.peek,
    "refund": limiter.refund,
    "consume_all": lambda limit, key, **cost: limiter.consume_all({limit: key}, **cost),
    "peek_all": lambda limit, key, **cost: limiter.peek_all({limit: key}, **cost),
}


@pytest.fixture(autouse=True)
def limits(settings):
    settings.RATELIMIT_LIMITS = {
        "login": "3/min",
        "everyone": "5/min",
        "hour": "2/h",
        "heavy": {"rate": "10/min", "cost": 4},
        "attempts": {"rate": "3/60s", "count_denied": True},
        "shade": {"rate": "2/min", "mode": "shadow"},
        "out": {"rate": "1/min", "mode": "off"},
        "none": None,
    }


def counts():
    """What is stored of each limit, by its name."""
    return {row.key.partition("@")[0]: row.count for row in Counter.objects.all()}


def consume_times(times, limit="login", **cost):
    return [limiter.consume(limit, KEY, **cost).allowed for _ in range(times)]


# What comes back ----------------------------------------------------------------------------------


def test_consume_allowed_returns_every_field(clock):
    clock.advance(12.5)
    policy = Policy("login", "fixed_window", 3, 60)
    assert limiter.consume("login", KEY, cost=2) == Decision(
        allowed=True,
        limit="login",
        key=KEY,
        cost=2,
        quota=3,
        remaining=1,
        reset_after=47.5,
        retry_after=0.0,
        decisions=(),
        used=2,
        policy=policy,
        shadow=False,
        over_quota=False,
        more_after=47.5,
        at=NOON + 12.5,
    )


def test_consume_refused_returns_every_field(clock):
    limiter.consume("login", KEY, cost=2)
    clock.advance(12.5)
    assert limiter.consume("login", KEY, cost=2) == Decision(
        allowed=False,
        limit="login",
        key=KEY,
        cost=2,
        quota=3,
        remaining=1,
        reset_after=47.5,
        retry_after=47.5,
        used=2,
        policy=Policy("login", "fixed_window", 3, 60),
        over_quota=True,
        more_after=47.5,
        at=NOON + 12.5,
    )
    assert counts() == {"login": 2}


def test_peek_returns_what_consume_would_and_writes_nothing(clock):
    untouched = limiter.peek("login", KEY)
    assert (untouched.allowed, untouched.remaining, untouched.used, untouched.reset_after) == (
        True,
        3,
        0,
        0.0,
    )
    assert not Counter.objects.exists()
    consume_times(3)
    assert limiter.peek("login", KEY) == limiter.consume("login", KEY)
    assert counts() == {"login": 3}


def test_consume_all_returns_the_tightest_with_all_parts():
    decision = limiter.consume_all({"everyone": "global", "login": KEY}, cost=2)
    assert [(part.limit, part.key, part.remaining) for part in decision.decisions] == [
        ("everyone", "global", 3),
        ("login", KEY, 1),
    ]
    assert (decision.allowed, decision.limit, decision.key, decision.remaining) == (True, "login", KEY, 1)
    assert (decision.cost, decision.retry_after) == (2, 0.0)


def test_consume_all_of_one_limit_is_consume():
    decision = limiter.consume_all({"login": KEY})
    limiter.reset("login", KEY)
    assert decision == limiter.consume("login", KEY)


def test_peek_all_returns_what_consume_all_would_and_writes_nothing():
    consume_times(3)
    keys = {"login": KEY, "everyone": "global"}
    assert limiter.peek_all(keys) == limiter.consume_all(keys)
    assert counts() == {"login": 3}


def test_refund_gives_units_back_down_to_none():
    consume_times(3)
    assert limiter.refund("login", KEY, cost=2) is None
    assert limiter.peek("login", KEY).remaining == 2
    limiter.refund("login", KEY, cost=10**30)
    assert limiter.peek("login", KEY).used == 0


@pytest.mark.parametrize("algorithm", [name for name in algorithms.names() if not algorithms.holds(name)])
def test_refund_gives_back_more_than_the_quota_has_become(algorithm):
    wide, tight = (Policy.parse(rate, name="edited", algorithm=algorithm) for rate in ("10/min", "3/min"))
    assert limiter.consume(wide, KEY, cost=10).allowed
    limiter.refund(tight, KEY, cost=10)
    assert limiter.peek(tight, KEY).used == 0


def test_refund_of_a_key_never_seen_makes_no_row():
    limiter.refund("login", KEY)
    assert not Counter.objects.exists()


def test_refund_leaves_the_window_before_alone(clock):
    consume_times(2)
    clock.advance(60)
    limiter.refund("login", KEY)
    assert counts() == {"login": 2}


def test_reset_forgets_this_key_of_this_limit(clock):
    consume_times(3)
    clock.advance(60)
    consume_times(3)
    limiter.consume("login", "ip:203.0.113.10")
    limiter.consume("hour", KEY)
    assert limiter.reset("login", KEY) is None
    assert limiter.peek("login", KEY).used == 0
    assert limiter.peek("login", "ip:203.0.113.10").used == 1
    assert limiter.peek("hour", KEY).used == 1
    assert Counter.objects.count() == 2


# What is asked ------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost", BAD_COSTS)
@pytest.mark.parametrize("ask", ASK)
def test_cost_that_is_none_is_an_error_and_counts_nothing(ask, cost):
    with pytest.raises(ValueError, match="cost"):
        ASK[ask]("login", KEY, cost=cost)
    assert not Counter.objects.exists()


@pytest.mark.parametrize("key", BAD_KEYS)
@pytest.mark.parametrize("ask", [*ASK.values(), limiter.reset])
def test_key_that_is_no_text_is_an_error_and_counts_nothing(ask, key):
    with pytest.raises(ValueError, match="key"):
        ask("login", key)
    assert not Counter.objects.exists()


def test_one_bad_key_among_several_counts_none():
    with pytest.raises(ValueError, match="key"):
        limiter.consume_all({"login": KEY, "everyone": 42})
    assert not Counter.objects.exists()


@pytest.mark.parametrize("ask", [limiter.consume_all, limiter.peek_all])
def test_no_limit_at_all_is_an_error(ask):
    with pytest.raises(ValueError, match="at least one"):
        ask({})


def test_cost_not_given_is_the_limits_own():
    decision = limiter.consume("heavy", KEY)
    assert (decision.cost, decision.remaining) == (4, 6)
    limiter.refund("heavy", KEY)
    assert limiter.peek("heavy", KEY).used == 0


def test_costs_not_given_to_several_are_each_their_own():
    decision = limiter.consume_all({"heavy": KEY, "login": KEY})
    assert [part.cost for part in decision.decisions] == [4, 1]
    assert counts() == {"heavy": 4, "login": 1}


@pytest.mark.parametrize("cost", [4, 10**15, 10**30])
def test_cost_above_the_quota_is_refused_for_ever_and_takes_nothing(cost):
    decision = limiter.consume("login", KEY, cost=cost)
    assert (decision.allowed, decision.retry_after, decision.retry_after_seconds) == (False, None, None)
    assert (decision.cost, decision.remaining) == (cost, 3)
    assert not Counter.objects.exists()
    assert limiter.consume("login", KEY, cost=1).allowed


def test_window_that_ends_lets_in_anew_after_retry_after(clock):
    clock.advance(45)
    assert consume_times(4) == [True, True, True, False]
    wait = limiter.peek("login", KEY).retry_after
    assert wait == 15.0
    clock.advance(wait - 0.000001)
    assert not limiter.peek("login", KEY).allowed
    clock.advance(0.000001)
    assert limiter.consume("login", KEY).remaining == 2


def test_keys_are_counted_apart_and_exactly():
    keys = ["a", "A", "a ", "á", "", "a" * 300 + "1", "a" * 300 + "2", "bob", "bob\x00", "\ud800", "😀"]
    for key in keys:
        assert [limiter.consume("hour", key).allowed for _ in range(3)] == [True, True, False], key
    assert Counter.objects.count() == len(keys)


# Which limit --------------------------------------------------------------------------------------


def test_unknown_name_limits_nothing_and_is_reported_once(caplog):
    decisions = [limiter.consume("nosuch", KEY, cost=7) for _ in range(3)]
    assert decisions == [Decision(True, "nosuch", KEY, 7)] * 3
    assert [(record.levelname, "nosuch" in record.message) for record in caplog.records] == [
        ("WARNING", True)
    ]
    assert not Counter.objects.exists()


def test_unknown_name_among_others_leaves_them_in_force():
    keys = {"nosuch": KEY, "login": KEY}
    assert [limiter.consume_all(keys).allowed for _ in range(4)] == [True] * 3 + [False]


def test_refund_and_reset_of_an_unknown_name_do_nothing():
    limiter.refund("nosuch", KEY)
    limiter.reset("nosuch", KEY)


@pytest.mark.parametrize("name", ["out", "none"])
def test_limit_that_is_off_allows_without_a_word(name, caplog):
    assert limiter.consume(name, KEY) == Decision(True, name, KEY, 1)
    assert not caplog.records
    assert not Counter.objects.exists()


def test_everything_off_by_setting_allows_and_counts_nothing(settings):
    consume_times(3)
    settings.RATELIMIT_ENABLE = False
    assert limiter.consume("login", KEY) == Decision(True, "login", KEY, 1)
    assert limiter.consume_all({"login": KEY, "everyone": KEY}).allowed
    limiter.refund("login", KEY)
    limiter.reset("login", KEY)
    assert counts() == {"login": 3}
    with pytest.raises(ValueError, match="cost"):
        limiter.consume("login", KEY, cost=0)


def test_policy_is_a_limit_without_a_name_to_look_up():
    policy = Policy.parse("2/min", name="ad hoc")
    assert consume_times(3, policy) == [True, True, False]
    assert limiter.peek(policy, KEY).policy == policy
    limiter.reset(policy, KEY)
    assert limiter.peek(policy, KEY).used == 0


def test_policy_and_limits_of_one_name_have_their_own_counters():
    policy = Policy.parse("3/min", name="login")
    limiter.consume(policy, KEY)
    limiter.consume("login", KEY)
    baker.make(Limit, name="login", rate="3/min")
    limiter.consume("login", KEY)
    assert sorted(Counter.objects.values_list("count", flat=True)) == [1, 1, 1]


@pytest.mark.parametrize("suffix", ["policy", "code", "1", "2"])
def test_policy_and_limit_of_names_that_look_alike_have_their_own_counters(settings, suffix):
    settings.RATELIMIT_LIMITS = {"a": "9/min", f"a@{suffix}": "9/min"}
    policies = [Policy.parse("9/min", name=name) for name in ("a", f"a@{suffix}")]
    for limit in ["a", f"a@{suffix}", *policies]:
        limiter.consume(limit, KEY)
    assert Counter.objects.count() == 4


# Counting refused calls, shadows ------------------------------------------------------------------


def test_count_denied_counts_past_the_quota(clock):
    seen = []
    for _ in range(5):
        decision = limiter.consume("attempts", KEY)
        seen.append((decision.allowed, decision.used, decision.remaining))
        clock.advance(10)
    assert seen == [(True, 1, 2), (True, 2, 1), (True, 3, 0), (False, 4, 0), (False, 5, 0)]
    assert limiter.peek("attempts", KEY).used == 5


def test_count_denied_among_others_counts_only_what_it_refuses_itself():
    consume_times(3, "attempts")
    limiter.consume_all({"attempts": KEY, "everyone": KEY})
    assert counts() == {"attempts": 4}
    consume_times(2, "hour")
    limiter.consume_all({"attempts": "another", "hour": KEY})
    assert counts() == {"attempts": 4, "hour": 2}


def test_shadow_counts_reports_and_never_refuses():
    decisions = [limiter.consume("shade", KEY) for _ in range(3)]
    assert [(d.allowed, d.shadow, d.over_quota, d.retry_after) for d in decisions] == [
        (True, True, False, 0.0),
        (True, True, False, 0.0),
        (True, True, True, 0.0),
    ]
    assert counts() == {"shade": 2}


def test_shadow_that_over_quota_does_not_keep_others_from_being_taken():
    consume_times(2, "shade")
    assert limiter.consume_all({"shade": KEY, "login": KEY}).allowed
    assert counts() == {"shade": 2, "login": 1}


def test_shadow_takes_nothing_when_others_refuse():
    consume_times(3)
    decision = limiter.consume_all({"shade": KEY, "login": KEY})
    assert (decision.allowed, decision.limit) == (False, "login")
    assert counts() == {"login": 3}


def test_shadow_does_not_speak_for_those_in_force():
    consume_times(2, "shade")
    for keys in ({"shade": KEY, "login": KEY}, {"login": KEY, "shade": KEY}):
        decision = limiter.peek_all(keys)
        assert (decision.limit, decision.remaining, decision.shadow) == ("login", 3, False)


@pytest.fixture
def refusals():
    seen = []

    def listen(sender, decision, **kwargs):
        seen.append((sender, decision))

    signals.over_quota.connect(listen)
    yield seen
    signals.over_quota.disconnect(listen)


@pytest.mark.parametrize(("name", "allowed"), [("login", False), ("shade", True)])
def test_refusal_sends_the_signal(name, allowed, refusals):
    consume_times(limiter.peek(name, KEY).quota, name)
    assert refusals == []
    decision = limiter.consume(name, KEY)
    assert decision.allowed is allowed
    assert refusals == [(name, decision)]


# Several limits at once ---------------------------------------------------------------------------


@pytest.mark.parametrize("turn", [1, -1])
def test_all_are_taken_or_none_whatever_their_order(turn):
    keys = dict(list({"hour": KEY, "login": KEY, "everyone": KEY}.items())[::turn])
    assert [limiter.consume_all(keys).allowed for _ in range(3)] == [True, True, False]
    assert counts() == {"hour": 2, "login": 2, "everyone": 2}


@pytest.mark.parametrize("turn", [1, -1])
def test_longest_wait_of_those_that_refuse_decides(turn):
    consume_times(3)
    consume_times(2, "hour")
    decision = limiter.consume_all(dict([("login", KEY), ("hour", KEY), ("everyone", KEY)][::turn]))
    assert (decision.limit, decision.retry_after) == ("hour", 3600.0)
    assert {part.limit: part.allowed for part in decision.decisions} == {
        "login": False,
        "hour": False,
        "everyone": True,
    }


def test_wait_that_never_helps_outlasts_any_other():
    consume_times(3)
    decision = limiter.consume_all({"login": KEY, "hour": KEY}, cost=3)
    assert (decision.limit, decision.retry_after) == ("hour", None)


DRF = [(0, 1, None)] * 3 + [(0, 1, 1.0)] + [(1, 1, None)] * 3 + [(1, 1, 59.0), (2, 1, 58.0)]
SYMFONY = [(0, 4, None), (0, 1, 1.0), (1, 3, None), (1, 1, None)]


@pytest.mark.parametrize(
    ("rates", "steps"),
    [(["3/s", "6/min"], DRF), (["4/1s", "8/10s", "16/30s"], SYMFONY)],
    ids=["drf", "symfony"],
)
def test_published_sequence_of_several_limits(rates, steps, clock):
    keys = {Policy.parse(rate): KEY for rate in rates}
    start, answers = clock.now, []
    for at, cost, _ in steps:
        clock.advance(start + at - clock.now)
        decision = limiter.consume_all(keys, cost=cost)
        answers.append((at, cost, None if decision.allowed else decision.retry_after))
    assert answers == steps


# What it costs ------------------------------------------------------------------------------------


@contextlib.contextmanager
def statements(alias):
    sent = []
    with CaptureQueriesContext(connections[alias]) as captured:
        yield sent
    sent.extend(query["sql"] for query in captured)


REFUSED = {"sqlite": 2, "postgresql": 1, "mysql": 1}


@pytest.mark.django_db(transaction=True)
def test_decision_takes_one_statement_and_none_of_the_projects_own():
    limiter.current_limits()
    steps = [
        (limiter.consume, 1, True),
        (limiter.consume, 1, True),
        (limiter.consume, 1, True),
        (limiter.consume, REFUSED[connections["ratelimit"].vendor], False),
        (limiter.peek, 1, False),
    ]
    for ask, expected, allowed in steps:
        with statements("default") as own, statements("ratelimit") as sent:
            assert ask("login", KEY).allowed is allowed
        assert (own, len(sent)) == ([], expected), sent


@pytest.mark.django_db(transaction=True)
def test_cost_of_many_units_takes_one_statement():
    limiter.current_limits()
    with statements("ratelimit") as sent:
        limiter.consume("everyone", KEY, cost=5)
    assert len(sent) == 1


@pytest.mark.django_db(transaction=True)
def test_peek_at_many_limits_takes_one_query():
    keys = dict.fromkeys(("login", "everyone", "hour", "heavy", "shade"), KEY)
    limiter.current_limits()
    with statements("ratelimit") as sent:
        limiter.peek_all(keys)
    assert len(sent) == 1


# A database that does not answer ------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("kind", ["table", "server"])
def test_outage_allows_uncounted_and_is_reported_once(kind, caplog):
    consume_times(3)
    with outage(kind):
        assert consume_times(2) == [True, True]
        assert limiter.consume("login", KEY, cost=99) == Decision(True, "login", KEY, 99)
        assert limiter.consume("heavy", KEY) == Decision(True, "heavy", KEY, 4)
        assert limiter.peek("login", KEY).allowed
        assert limiter.consume_all({"login": KEY, "everyone": KEY}).allowed
        assert limiter.consume_all({"login": KEY, "shade": KEY}).allowed
        assert limiter.peek_all({"login": KEY, "everyone": KEY}).allowed
        assert limiter.consume(Policy.parse("1/min"), KEY).allowed
        limiter.refund("login", KEY)
        limiter.reset("login", KEY)
    reports = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.levelname for record in reports] == ["ERROR"]
    assert reports[0].message.startswith("The counters' database 'ratelimit' does not answer: ")
    assert not limiter.consume("login", KEY).allowed
    assert counts() == {"login": 3}


@pytest.mark.django_db(transaction=True)
def test_outage_does_not_hide_a_bad_call():
    with outage("table"), pytest.raises(ValueError, match="cost"):
        limiter.consume("login", KEY, cost=0)


@pytest.mark.django_db(transaction=True)
def test_outage_sends_no_signal(refusals):
    consume_times(3)
    with outage("table"):
        limiter.consume("login", KEY)
    assert refusals == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("alias", ["default", "ratelimit"])
def test_outage_leaves_the_callers_transaction_usable(alias):
    with outage("table"), transaction.atomic(using=alias):
        assert limiter.consume("login", KEY).allowed
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)


@pytest.mark.django_db
def test_policies_that_would_share_a_counter_are_an_error(clock):
    tight, wide = Policy.parse("5/min", name="same"), Policy.parse("10/min", name="same")
    with pytest.raises(ValueError, match="share a counter"):
        limiter.consume_all({tight: "k", wide: "k"})
    assert not Counter.objects.exists()
