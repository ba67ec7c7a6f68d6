"""What counting in and beside the caller's transaction is on every database.

What a server does besides is in ``server_contract.py``.
"""

import contextlib

import pytest
from django.db import connections, transaction
from django.test import TestCase

from ratelimit_app import limiter
from ratelimit_app.models import Counter, Limit
from ratelimit_app.policy import Policy
from ratelimit_app.stores.committing import committing_connection, in_transaction
from ratelimit_app.testing import frozen_time
from tests.conftest import NOON
from tests.stores.contract import ALIAS, counts, put

FIVE = Policy.parse("5/min", name="five")


@pytest.mark.django_db(transaction=True)
def test_connection_outside_a_transaction_is_the_alias_s_own():
    assert committing_connection(ALIAS) is connections[ALIAS]


@pytest.mark.django_db(transaction=True)
def test_closed_connection_is_not_opened_by_the_question_whether_it_commits():
    connections[ALIAS].close()
    assert committing_connection(ALIAS).connection is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("calls", [1, 3])
def test_count_stays_though_the_caller_rolls_back_on_another_alias(clock, calls):
    with transaction.atomic(using="default"):
        Limit.objects.create(name="mine", rate="5/m")
        for _ in range(calls):
            limiter.consume(FIVE, "k")
        transaction.set_rollback(True, using="default")
    assert not Limit.objects.exists()
    assert limiter.peek(FIVE, "k").used == calls


class InATestCase(TestCase):
    """Two tests that would each see the other's counts, whichever comes first, if they were kept."""

    databases = "__all__"

    def setUp(self):
        time = contextlib.ExitStack()
        time.enter_context(frozen_time(NOON))
        self.addCleanup(time.close)

    def count(self):
        for _ in range(3):
            limiter.consume(FIVE, "k")
        limiter.consume_all({FIVE: "k", Policy.parse("9/h", name="nine"): "k"})
        assert sorted(counts().values()) == [1, 4]

    def test_counts_go_back_with_the_test(self):
        self.count()

    def test_counts_go_back_with_the_other_test_too(self):
        self.count()

    def test_counts_go_back_with_the_test_though_they_were_made_in_a_transaction(self):
        with transaction.atomic(using=ALIAS):
            self.count()

    def test_counting_uses_the_connection_of_the_test(self):
        assert committing_connection(ALIAS) is connections[ALIAS]


# A transaction of one's own -----------------------------------------------------------------------


class WorkFailedError(Exception):
    pass


def put_and(result):
    def work():
        put("k")
        if isinstance(result, Exception):
            raise result
        return result, "what it found"

    return work


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("result", "kept"), [(True, {"k": 1}), (False, {})])
def test_work_in_a_transaction_is_kept_if_it_says_so(result, kept):
    assert in_transaction(connections[ALIAS], put_and(result)) == "what it found"
    assert counts() == kept
    assert connections[ALIAS].get_autocommit()


@pytest.mark.django_db(transaction=True)
def test_work_that_fails_is_undone_and_its_error_raised():
    with pytest.raises(WorkFailedError):
        in_transaction(connections[ALIAS], put_and(WorkFailedError()))
    assert counts() == {}
    in_transaction(connections[ALIAS], put_and(True))
    assert counts() == {"k": 1}


@pytest.mark.django_db
@pytest.mark.parametrize(("result", "kept"), [(True, {"mine": 1, "k": 1}), (False, {"mine": 1})])
def test_work_inside_a_transaction_is_kept_apart_from_what_was_before(result, kept):
    put("mine")
    assert in_transaction(connections[ALIAS], put_and(result)) == "what it found"
    assert counts() == kept


@pytest.mark.django_db
def test_work_that_fails_inside_a_transaction_leaves_what_was_before():
    put("mine")
    with pytest.raises(WorkFailedError):
        in_transaction(connections[ALIAS], put_and(WorkFailedError()))
    assert counts() == {"mine": 1}
    Counter.objects.create(key="after", window_start=0, count=1, expires_at=1)
