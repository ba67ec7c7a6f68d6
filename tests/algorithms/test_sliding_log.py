import pytest

from ratelimit_app.policy import Policy
from tests.algorithms import oracles
from tests.algorithms.bench import Bench, admitted, ask, outcomes
from tests.algorithms.oracles import Peek


def parse(rate):
    return Policy.parse(rate, algorithm="sliding_log")


@pytest.mark.parametrize("table", oracles.SLIDING_LOG.values(), ids=oracles.SLIDING_LOG)
def test_steps_have_the_published_outcomes(table):
    assert outcomes(table) == table.steps


def test_sixty_pass_around_the_edge_of_a_minute():
    calls = [59 + i / 60 for i in range(60)] + [60 + i / 60 for i in range(60)]
    assert admitted(Bench(), parse("60/min"), calls) == 60


def test_full_quota_is_back_when_the_newest_entry_has_expired():
    bench, policy = Bench(), parse("5/min")
    admitted(bench, policy, [0, 10, 20])
    assert ask(bench, [policy], 30, Peek(1)).reset_after == 50
    assert ask(bench, [policy], 80, Peek(5)).allowed


def test_clock_that_steps_back_grants_nothing():
    bench, policy = Bench(), parse("2/min")
    assert admitted(bench, policy, [0, 0]) == 2
    assert admitted(bench, policy, [-3600, -60, -1, 0, -86400]) == 0
    assert ask(bench, [policy], -60, Peek(1)).retry_after == 120


def test_entries_expire_in_their_order_though_the_clock_has_stepped_back():
    bench, policy = Bench(), parse("2/min")
    assert admitted(bench, policy, [0, -30]) == 2
    assert [ask(bench, [policy], at, Peek(1)).remaining for at in (30, 59, 60)] == [0, 0, 2]


def test_denied_calls_that_count_keep_who_knocks_out_for_longer():
    bench, policy = Bench(count_denied=True), parse("1/min")
    assert [ask(bench, [policy], second).allowed for second in (0, 30, 70)] == [True, False, False]
    assert ask(bench, [policy], 90, Peek(1)).retry_after == 40


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        ("5/month", "rate: a sliding log has one length"),
        ("5/calendar day", "rate: a sliding log has one length"),
        ("1000000001/s", "rate: a sliding log holds 1,000,000,000 units at most, got 1,000,000,001"),
    ],
)
def test_what_it_cannot_do_is_an_error(rate, message):
    with pytest.raises(ValueError, match=message):
        parse(rate)


def test_burst_is_an_error():
    with pytest.raises(ValueError, match="burst: a sliding log has none"):
        Policy.parse("5/min", algorithm="sliding_log", burst=5)
