import pytest

from ratelimit_app import limiter, signals
from ratelimit_app.policy import Policy

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

TIGHT, WIDE = Policy.parse("1/min", name="tight"), Policy.parse("9/min", name="wide")


@pytest.fixture
def listen():
    receivers = []

    def connect(receiver, **kwargs):
        receivers.append(receiver)
        signals.over_quota.connect(receiver, **kwargs)

    yield connect
    for receiver in receivers:
        signals.over_quota.disconnect(receiver)


def test_refused_is_sent_for_each_limit_that_refuses_and_no_other(listen):
    seen = []
    listen(lambda sender, decision, **kwargs: seen.append((sender, decision.limit, decision.key)), weak=False)
    for _ in range(2):
        limiter.consume_all({WIDE: "w", TIGHT: "t"})
    assert seen == [("tight", "tight", "t")]


def test_refused_carries_the_decision_of_that_limit_alone(listen):
    seen = []
    listen(lambda sender, decision, **kwargs: seen.append(decision), weak=False)
    limiter.consume(TIGHT, "t")
    decision = limiter.consume_all({WIDE: "w", TIGHT: "t"})
    assert seen == [decision.decisions[1]]
    assert (seen[0].allowed, seen[0].over_quota, seen[0].decisions) == (False, True, ())


def test_refused_is_not_sent_by_a_look(listen):
    seen = []
    listen(lambda **kwargs: seen.append(kwargs), weak=False)
    limiter.consume(TIGHT, "t")
    assert not limiter.peek(TIGHT, "t").allowed
    assert seen == []


def test_listener_that_fails_changes_nothing(listen, caplog):
    def fail(**kwargs):
        raise ZeroDivisionError

    listen(fail)
    assert [limiter.consume(TIGHT, "t").allowed for _ in range(2)] == [True, False]
    assert "ZeroDivisionError" in caplog.text
