"""A connection that the server has ended is replaced once, silently: the call counts, nothing is logged."""

import contextlib

import pytest
from django.db import DatabaseError, Error, connections, transaction
from model_bakery import baker

from ratelimit_app import limiter, statistics
from ratelimit_app.models import Limit
from ratelimit_app.policy import Policy
from ratelimit_app.stores import store_for
from ratelimit_app.stores.committing import close_if_broken
from tests.races import in_threads
from tests.transactions.servers import kill, session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

ALIAS = "ratelimit"
NINE = Policy.parse("9/min", name="nine")
LOG = Policy.parse("9/min", name="log", algorithm="sliding_log")
WINDOWS = Policy.parse("9/min", name="windows", algorithm="sliding_window")

#: What is asked, and what is used of each limit when three units of it were.
QUESTIONS = {
    "consume": (lambda: limiter.consume_all({NINE: "k"}), 4),
    "consume of a log": (lambda: limiter.consume_all({LOG: "k"}), 4),
    "consume of a sliding window": (lambda: limiter.consume_all({WINDOWS: "k"}), 4),
    "consume of all": (lambda: limiter.consume_all(dict.fromkeys((NINE, LOG, WINDOWS), "k")), 4),
    "refused": (lambda: limiter.consume_all({NINE: "k"}, cost=7), 3),
    "peek": (lambda: limiter.peek_all(dict.fromkeys((NINE, LOG, WINDOWS), "k")), 3),
    "refund": (lambda: limiter.refund(NINE, "k"), 2),
    "refund of a log": (lambda: limiter.refund(LOG, "k"), 2),
    "reset": (lambda: limiter.reset(NINE, "k"), 0),
}
ASKED = {"consume of a log": LOG, "refund of a log": LOG, "consume of a sliding window": WINDOWS}


@pytest.fixture(autouse=True)
def _silent(caplog):
    """Nothing is logged, and no call goes uncounted."""
    before = statistics.read()
    yield
    assert caplog.records == []
    assert statistics.read() == before


def take_three():
    for policy in (NINE, LOG, WINDOWS):
        limiter.consume(policy, "k", cost=3)


@pytest.mark.parametrize("place", ["outside", "inside"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_call_after_the_server_has_ended_its_connection_is_right(place, question):
    ask, used = QUESTIONS[question]
    with transaction.atomic(using=ALIAS) if place == "inside" else contextlib.nullcontext():
        take_three()
        kill(store_for(ALIAS).connection())
        ask()
        assert limiter.peek(ASKED.get(question, NINE), "k").used == used


def test_connection_is_replaced_each_time_that_it_has_ended():
    for _ in range(5):
        assert limiter.consume(NINE, "k").allowed
        kill(connections[ALIAS])
    assert limiter.peek(NINE, "k").used == 5


def test_connections_of_all_threads_are_replaced():
    def hit(index):
        taken = limiter.consume(NINE, "k").allowed
        kill(connections[ALIAS])
        return [taken, limiter.consume(NINE, "k").allowed]

    assert in_threads(4, hit) == [[True, True]] * 4
    assert limiter.peek(NINE, "k").used == 8


def test_limits_are_read_though_the_connection_to_them_has_ended(settings):
    settings.RATELIMIT_REFRESH = 0
    limit = baker.make(Limit, name="case", rate="5/min")
    assert limiter.consume("case", "k").remaining == 4
    Limit.objects.filter(pk=limit.pk).update(rate="9/min")
    kill(connections["default"], by=ALIAS)
    assert limiter.consume("case", "k").remaining == 7


def test_caller_whose_own_connection_has_ended_in_its_transaction_is_counted():
    """It learns of it by its own next statement; the limiter neither hides that nor makes it worse."""
    own = connections[ALIAS]

    def lose():
        with transaction.atomic(using=ALIAS):
            Limit.objects.using(ALIAS).exists()
            kill(own)
            assert limiter.consume(NINE, "k").used == 1
            close_if_broken(own)
            assert not own.closed_in_transaction
            Limit.objects.using(ALIAS).exists()

    with pytest.raises(Error):
        lose()
    assert limiter.consume(NINE, "k").used == 2


# Ended at work ------------------------------------------------------------------------------------


class Fragile:
    """A question whose connection the server ends so many times while it is being asked."""

    def __init__(self, times):
        self.times = times
        self.asked = []

    def __call__(self, connection):
        self.asked.append(session(connection))
        if len(self.asked) <= self.times:
            kill(connection)
        with connection.cursor() as cursor:
            cursor.execute("SELECT 5")
            return cursor.fetchone()[0]


@pytest.fixture
def store():
    store = store_for(ALIAS)
    store.server_time()
    return store


def test_question_whose_connection_ends_meanwhile_is_asked_once_more(store):
    question = Fragile(1)
    assert store.retry(question) == 5
    assert len(set(question.asked)) == 2


def test_server_that_ends_each_connection_is_not_asked_for_ever(store):
    question = Fragile(9)
    with pytest.raises(DatabaseError):
        store.retry(question)
    assert len(question.asked) == 2
    assert store.retry(Fragile(0)) == 5


def test_question_on_a_connection_that_was_opened_for_it_is_not_asked_again(store):
    connections[ALIAS].close()
    question = Fragile(1)
    with pytest.raises(DatabaseError):
        store.retry(question)
    assert len(question.asked) == 1
    assert store.retry(Fragile(0)) == 5


def test_what_must_not_happen_twice_is_not_asked_again(store):
    question = Fragile(1)
    with pytest.raises(DatabaseError):
        store.retry(question, is_repeatable=False)
    assert len(question.asked) == 1
    assert store.retry(Fragile(0)) == 5


def test_other_error_on_a_living_connection_is_not_asked_again(store):
    asked = []

    def question(connection):
        asked.append(session(connection))
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM no_such_table")

    with pytest.raises(DatabaseError):
        store.retry(question)
    assert asked == [session(connections[ALIAS])]
