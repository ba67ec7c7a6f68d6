"""What is decided while the database does not answer, through the front door."""

import pytest

from ratelimit_app import fallbacks, limiter, outages, statistics
from ratelimit_app.limits import LiveLimit
from ratelimit_app.models import Counter
from ratelimit_app.outages import Unanswered
from ratelimit_app.policy import Policy
from ratelimit_app.stores.memory import MemoryStore
from tests.outages import outage

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

KEY = "ip:203.0.113.9"


def limit(name, rate="2/min", algorithm="fixed_window", **fields):
    return LiveLimit(Policy.parse(rate, name=name, algorithm=algorithm), name, **fields)


ALLOW, DENY, LOCAL = (limit(on_error, on_error=on_error) for on_error in ("allow", "deny", "local"))
SHADOW = limit("shadow", mode="shadow", on_error="deny")


@pytest.fixture(autouse=True)
def _no_local_counters(monkeypatch):
    monkeypatch.setattr(fallbacks, "local", MemoryStore())


@pytest.fixture
def away():
    with outage("server"):
        yield


@pytest.fixture
def busy(monkeypatch):
    def ask(*args, **kwargs):
        raise Unanswered(is_busy=True)

    monkeypatch.setattr(outages, "ask", ask)


def answers(*limits, times=3, cost=None):
    decisions = [limiter.consume_all(dict.fromkeys(limits, KEY), cost=cost) for _ in range(times)]
    return [(decision.allowed, decision.unavailable) for decision in decisions]


FREE, REFUSED, UNAVAILABLE = (True, False), (False, False), (False, True)


def test_allow_lets_calls_through_uncounted(away):
    assert answers(ALLOW) == [FREE] * 3
    assert limiter.consume(ALLOW, KEY).quota is None


def test_deny_refuses_them_for_a_second(away):
    assert answers(DENY) == [UNAVAILABLE] * 3
    decision = limiter.consume(DENY, KEY)
    assert (decision.retry_after, decision.retry_after_seconds, decision.receipt) == (1.0, 1, None)


def test_local_counts_them_in_this_process(away, clock):
    assert answers(LOCAL) == [FREE, FREE, REFUSED]
    decision = limiter.consume(LOCAL, KEY)
    assert (decision.remaining, decision.retry_after) == (0, 60)
    clock.advance(60)
    assert answers(LOCAL) == [FREE, FREE, REFUSED]


@pytest.mark.parametrize(("setting", "expected"), [("allow", FREE), ("deny", UNAVAILABLE), ("local", FREE)])
def test_setting_is_for_limits_that_say_nothing_and_for_policies(away, settings, setting, expected):
    settings.RATELIMIT_ON_ERROR = setting
    assert answers(limit("silent"), times=2) == [expected] * 2
    assert answers(Policy.parse("2/min", name="policy"), times=2) == [expected] * 2


def test_shadow_limit_never_refuses(away):
    assert answers(SHADOW) == [FREE] * 3


def test_one_that_is_denied_takes_nothing_from_local_ones(away):
    assert answers(LOCAL, DENY) == [UNAVAILABLE] * 3
    assert answers(LOCAL) == [FREE, FREE, REFUSED]


def test_local_limits_are_taken_from_all_at_once_or_not_at_all(away):
    other = limit("other", rate="1/min", on_error="local")
    assert answers(LOCAL, other) == [FREE, REFUSED, REFUSED]
    assert limiter.peek(LOCAL, KEY).used == 1


def test_peek_takes_nothing(away):
    assert [limiter.peek(LOCAL, KEY).remaining for _ in range(3)] == [2] * 3


def test_what_was_local_is_settled_refunded_and_reset_there(away):
    decision = limiter.consume(LOCAL, KEY, cost=2)
    limiter.settle(decision, 1)
    assert limiter.peek(LOCAL, KEY).used == 1
    limiter.settle(limiter.consume(LOCAL, KEY), 3)
    assert limiter.peek(LOCAL, KEY).used == 4
    limiter.refund(LOCAL, KEY, cost=3)
    assert limiter.peek(LOCAL, KEY).used == 1
    limiter.reset(LOCAL, KEY)
    assert limiter.peek(LOCAL, KEY).used == 0


def test_what_is_held_locally_is_given_back_there(away):
    held = limit("held", algorithm="concurrency", on_error="local")
    for _ in range(3):
        with limiter.limited(held, KEY), limiter.limited(held, KEY):
            assert not limiter.consume(held, KEY).allowed


def test_local_unit_is_settled_locally_when_the_database_is_back():
    with outage("server"):
        decision = limiter.consume(LOCAL, KEY)
    limiter.settle(decision, 0)
    assert not Counter.objects.exists()
    with outage("server"):
        assert limiter.peek(LOCAL, KEY).used == 0


def test_what_the_database_has_counted_is_taken_off_no_local_count():
    decision = limiter.consume(LOCAL, KEY)
    with outage("server"):
        assert answers(LOCAL) == [FREE, FREE, REFUSED]
        limiter.settle(decision, 0)
        assert answers(LOCAL, times=1) == [REFUSED]


def test_database_counts_on_where_it_was():
    assert answers(LOCAL, times=1) == [FREE]
    with outage("server"):
        assert answers(LOCAL) == [FREE, FREE, REFUSED]
    assert answers(LOCAL, times=2) == [FREE, REFUSED]


def test_lock_is_never_read_as_an_outage_that_lets_through(busy):
    assert answers(ALLOW) == [UNAVAILABLE] * 3
    assert answers(DENY) == [UNAVAILABLE] * 3
    assert answers(LOCAL) == [FREE, FREE, REFUSED]
    assert answers(SHADOW) == [FREE] * 3


def test_local_counters_that_have_expired_are_dropped(away, clock):
    for number in range(50):
        limiter.consume(LOCAL, f"ip:{number}")
        clock.advance(60)
    assert fallbacks.local.count_expired(limiter.now()) <= 1


def test_statistics_tell_what_became_of_calls(away):
    before = statistics.read()
    answers(ALLOW, times=2)
    answers(LOCAL, times=3)
    answers(DENY, times=4)
    after = statistics.read()
    assert {name: after[name] - before[name] for name in ("allowed", "local", "denied")} == {
        "allowed": 2,
        "local": 3,
        "denied": 4,
    }
