"""To wait for what others hold, of a limit of how many run at once."""

import datetime
import math

import pytest
from model_bakery import baker

from ratelimit_app import limiter, waiting
from ratelimit_app.models import Limit, LimitOverride
from ratelimit_app.policy import Policy
from tests.conftest import NOON
from tests.test_waiting import both_kinds

pytestmark = pytest.mark.django_db

EXPORTS = Policy.parse("1/min", name="exports", algorithm="concurrency")


@pytest.fixture
def looks(monkeypatch, clock):
    """The seconds at which a waiter looks; what the test does then is to be put into ``looks.then``."""
    consume, seen = limiter.consume, Looks()

    def look(*args, **kwargs):
        seen.append(clock.now - NOON)
        seen.then(seen[-1])
        return consume(*args, **kwargs)

    monkeypatch.setattr(limiter, "consume", look)
    return seen


class Looks(list):
    def then(self, at):
        """Do nothing."""


@both_kinds
def test_wait_for_what_others_hold_ends_soon_after_it_has_come_back(wait, clock, looks):
    held = limiter.consume(EXPORTS, "k")
    looks.then = lambda at: at >= 7.2 and limiter.leave(held)
    assert wait(EXPORTS, "k", max_wait=30).allowed
    assert 7.2 <= clock.now - NOON <= 7.2 + waiting.LOOK_EVERY


@both_kinds
def test_wait_for_what_others_hold_is_no_longer_than_asked_and_looks_now_and_then(wait, clock, looks):
    limiter.consume(EXPORTS, "k")
    looks.clear()
    decision = wait(EXPORTS, "k", max_wait=30.2)
    assert (decision.allowed, clock.now - NOON) == (False, pytest.approx(30.2))
    assert looks == pytest.approx([*(n * waiting.LOOK_EVERY for n in range(61)), 30.2])


@both_kinds
def test_wait_for_what_nobody_gives_back_ends_when_it_expires(wait, clock):
    limiter.consume(EXPORTS, "k")
    clock.advance(0.3)
    assert wait(EXPORTS, "k", max_wait=math.inf).allowed
    assert clock.now == NOON + 60


@both_kinds
@pytest.mark.parametrize("max_wait", [0, 30])
@pytest.mark.parametrize("key", ["user:blocked", "k"])
def test_wait_for_what_nobody_can_give_back_is_refused_at_once(wait, max_wait, key, clock):
    limit = baker.make(Limit, name="exports", rate="1/min", algorithm="concurrency")
    ends_at = datetime.datetime.fromtimestamp(NOON + 100, datetime.timezone.utc)
    baker.make(LimitOverride, limit=limit, key="user:blocked", effect="blocked", ends_at=ends_at)
    decision = wait("exports", key, max_wait=max_wait, cost=2 if key == "k" else 1)
    assert (decision.allowed, clock.now) == (False, NOON)
