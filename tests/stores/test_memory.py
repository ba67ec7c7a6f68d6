import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratelimit_app import algorithms, calls
from ratelimit_app.decision import combine
from ratelimit_app.limits import LiveLimit
from ratelimit_app.models import Counter, LoggedCall
from ratelimit_app.policy import Policy
from ratelimit_app.stores import store_for
from ratelimit_app.stores.memory import MemoryStore
from ratelimit_app.stores.memory_log import Log
from tests.algorithms import oracles
from tests.algorithms.oracles import Peek
from tests.conftest import NOON
from tests.races import in_threads

START = NOON * 1_000_000


def live(policy, **fields):
    return LiveLimit(policy, space=policy.name, **fields)


def ask(store, limits, now, cost=1, key="k"):
    """Ask several limits as one decision, or only look if the cost is a ``Peek``."""
    planned = [calls.plan(limit, key, int(cost), now) for limit in limits]
    advances = [call.advance for call in planned]
    if isinstance(cost, Peek):
        met = store.look(advances)
        outcomes = [met[call.row] for call in planned]
    else:
        outcomes = store.advance_all(advances)
    return combine([calls.judge(*pair) for pair in zip(planned, outcomes, strict=True)])


@pytest.mark.parametrize("table", oracles.ALL.values(), ids=oracles.ALL)
def test_steps_have_the_published_outcomes(table):
    store, limits = MemoryStore(), table.limits
    steps = oracles.play(
        table, lambda at, cost, key: ask(store, limits, START + round(at * 1_000_000), cost, key)
    )
    assert steps == table.steps


# The same as the database -----------------------------------------------------------------------


POLICIES = {
    name: [Policy.parse(rate, name=name, algorithm=name) for rate in ("3/10s", "7/min")]
    for name in algorithms.names()
}


class Pair:
    """The store of the database under test and one in memory, told the same."""

    def __init__(self):
        Counter.objects.all().delete()
        LoggedCall.objects.all().delete()
        self.stores = store_for("ratelimit"), MemoryStore()

    def same(self, do):
        told = [do(store) for store in self.stores]
        assert told[0] == told[1]

    def step(self, limits, what, now, cost, key):
        call = calls.plan(limits[0], key, cost, now)
        if what == "consume":
            self.same(lambda store: ask(store, limits, now, cost, key))
        elif what == "refund":
            self.same(lambda store: store.refund(call.advance))
        elif what == "reset":
            self.same(lambda store: store.reset(call.row.key))
        else:
            self.same(lambda store: store.count_expired(now))
            self.same(lambda store: store.prune(now, 1_000))
            self.same(lambda store: store.count_expired(now + 10**9))
        self.same(lambda store: ask(store, limits, now, Peek(cost), key))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["consume"] * 6 + ["refund", "reset", "prune"]),
        st.sampled_from([0, 0, 0.5, 3, 10, 60, 61.5, -2, -15]),
        st.sampled_from([1, 1, 2, 3, 4, 8]),
        st.sampled_from(["k", "K"]),
    ),
    max_size=30,
)


@pytest.mark.django_db
@pytest.mark.parametrize("count_denied", [False, True])
@pytest.mark.parametrize("limits", [1, 2])
@pytest.mark.parametrize("algorithm", algorithms.names())
def test_memory_answers_as_the_database_does(algorithm, limits, count_denied):
    tried = [live(policy, count_denied=count_denied) for policy in POLICIES[algorithm][:limits]]

    @settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
    @given(STEPS)
    def play(steps):
        pair, now = Pair(), START
        for what, seconds, cost, key in steps:
            now += round(seconds * 1_000_000)
            pair.step(tried, what, now, cost, key)

    play()


def test_clock_that_steps_back_does_not_meet_what_was_pruned():
    store, limit = MemoryStore(), live(Policy.parse("3/10s", algorithm="sliding_log"))
    ask(store, [limit], START)
    assert store.prune(START + 10_000_000, 1_000) == 1
    assert ask(store, [limit], START - 5_000_000).reset_after == 10


# What is held -----------------------------------------------------------------------------------

HELD = live(Policy.parse("5/min", name="held", algorithm="concurrency"))


def hold(store, now, cost=1, key="k"):
    """Hold units; return the advance that gives them back, ``None`` if there is no room."""
    call = calls.plan(HELD, key, cost, now)
    outcome = store.advance(call.advance)
    return call.taken(outcome).advance if outcome.fits else None


def used(store, now, key="k"):
    return ask(store, [HELD], now, Peek(1), key).used


def test_what_is_held_comes_back_once_and_by_itself():
    store = MemoryStore()
    first, second = hold(store, START, 2), hold(store, START + 1, 3)
    assert (hold(store, START + 2), used(store, START + 2)) == (None, 5)
    for given_back, left in ((first, 3), (first, 3), (second, 0), (first, 0)):
        store.refund(given_back)
        assert used(store, START + 3) == left


def test_what_is_held_comes_back_to_its_key_alone():
    store = MemoryStore()
    held = {key: hold(store, START, 2, key) for key in ("k", "K")}
    store.refund(held["k"])
    assert [used(store, START, key) for key in ("k", "K")] == [0, 2]


@pytest.mark.parametrize("forget", ["prune", "reset"])
def test_what_comes_back_too_late_takes_nothing_from_who_came_after(forget):
    store, later = MemoryStore(), START + 600 * 1_000_000
    late = hold(store, START, 5)
    if forget == "prune":
        store.prune(later, 1_000)
    else:
        store.reset(late.row.key)
    assert hold(store, later, 5).logged.entry == late.logged.entry
    store.refund(late)
    assert used(store, later) == 5


def test_prune_forgets_a_counter_whose_holdings_have_all_come_back():
    store = MemoryStore()
    for second in range(0, 300, 10):
        store.refund(hold(store, START + second * 1_000_000))
    end = START + 900 * 1_000_000
    assert (store.count_expired(end), store.prune(end, 1_000)) == (1, 1)
    assert (store._counters, store._due) == ({}, [])


TURNS = st.lists(
    st.tuples(
        st.sampled_from(["hold"] * 4 + ["give back"] * 4 + ["reset", "prune"]),
        st.sampled_from([0, 0, 0.5, 10, 60, 61.5, -15]),
        st.integers(0, 5),
    ),
    max_size=30,
)


class Holder(Pair):
    """The two stores, and what is held in both."""

    def __init__(self):
        super().__init__()
        self.held = []

    def turn(self, what, now, number):
        if what == "hold":
            self.held.append([hold(store, now, max(1, number)) for store in self.stores])
        elif what == "give back" and number < len(self.held):
            self.give_back(self.held[number])
        elif what == "reset":
            self.same(lambda store: store.reset(calls.plan(HELD, "k", 1, now).row.key))
        elif what == "prune":
            self.same(lambda store: store.prune(now, 1_000))
        self.same(lambda store: ask(store, [HELD], now, Peek(1)))

    def give_back(self, advances):
        for store, advance in zip(self.stores, advances, strict=True):
            if advance:  # also what has come back before, or has expired, or was forgotten
                store.refund(advance)


@pytest.mark.django_db
def test_memory_gives_back_what_is_held_as_the_database_does():
    @settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
    @given(TURNS)
    def play(turns):
        holder, now = Holder(), START
        for what, seconds, number in turns:
            now += round(seconds * 1_000_000)
            holder.turn(what, now, number)

    play()


# By itself ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_threads_are_admitted_exactly_as_often_as_the_quota_allows(algorithm):
    store, limit = MemoryStore(), live(Policy.parse("500/min", algorithm=algorithm))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        answers = in_threads(8, lambda _: [ask(store, [limit], START).allowed for _ in range(100)])
    finally:
        sys.setswitchinterval(before)
    assert sum(map(sum, answers)) == 500


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_prune_forgets_all_that_has_expired_however_often_it_was_used(algorithm):
    store, limit = MemoryStore(), live(Policy.parse("5/min", algorithm=algorithm))
    for second in range(0, 600, 3):
        for key in ("a", "b"):
            ask(store, [limit], START + second * 1_000_000, key=key)
    end = START + 900 * 1_000_000
    expired = store.count_expired(end)
    assert [store.prune(end, 1), store.prune(end, 10**6), store.prune(end, 10**6)] == [1, expired - 1, 0]
    assert (store._counters, store._due) == ({}, [])


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_prune_as_time_goes_on_keeps_what_still_counts_and_little_else(algorithm):
    store, limit = MemoryStore(), live(Policy.parse("5/min", algorithm=algorithm))
    same = MemoryStore()
    for second in range(6_000):
        now = START + second * 1_000_000
        store.prune(now, 1_000)
        assert ask(store, [limit], now) == ask(same, [limit], now)
    assert store.count_expired(2**62) <= 10
    assert len(store._due) <= 10


def test_log_of_many_entries_is_kept_in_order_through_pruning_and_refunds():
    log, units, now = Log(), {}, 0
    for now in range(0, 4_000, 2):
        log.add(3, now + 500)
        units[now + 500] = 3
        if now % 5 == 0:
            log.take_off(2, now, now + 500)
            units[now + 500] = 1
        log.prune(now, 7)
        live_units = {at: left for at, left in units.items() if at > now}
        assert log.used(now) == sum(live_units.values())
        assert log.empty_at(now) == max(live_units)
        assert len(log) == len(live_units) + log.expired(now)
