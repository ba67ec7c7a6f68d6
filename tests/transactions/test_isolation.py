"""REPEATABLE READ and SERIALIZABLE on the alias: what one meets there is sent again, and for so long only."""

import contextlib

import pytest
from django.db import DatabaseError, connections, transaction

from ratelimit_app import limiter
from ratelimit_app.models import Limit
from ratelimit_app.policy import Policy
from ratelimit_app.stores import store_for
from ratelimit_app.stores.committing import in_transaction
from tests.races import in_threads
from tests.stores.contract import advance, counts, put

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clock")]

ALIAS = "ratelimit"
ALGORITHMS = ("fixed_window", "sliding_window", "token_bucket", "sliding_log")
POLICIES = [Policy.parse("7/h", name=algorithm, algorithm=algorithm) for algorithm in ALGORITHMS]
THREADS = 6


def isolated_postgresql(level):
    from psycopg import IsolationLevel

    return {"isolation_level": IsolationLevel[level]}


def isolated_mysql(level):
    # MariaDB 10.6.18 and newer can find out that a row has changed since it was read (error 1020).
    check = "SET @@innodb_snapshot_isolation = ON" if connections[ALIAS].mysql_is_mariadb else "DO 0"
    return {"isolation_level": level.replace("_", " ").lower(), "init_command": check}


OPTIONS = {"postgresql": isolated_postgresql, "mysql": isolated_mysql}


@pytest.fixture
def isolation(request, monkeypatch):
    """Let connections that are opened from now on isolate their transactions so."""
    settings = connections[ALIAS].settings_dict
    options = {**settings["OPTIONS"], **OPTIONS[connections[ALIAS].vendor](request.param)}
    connections[ALIAS].close()
    monkeypatch.setitem(settings, "OPTIONS", options)
    yield
    connections[ALIAS].close()


by_level = pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"], indirect=True)
repeatable = pytest.mark.parametrize("isolation", ["REPEATABLE_READ"], indirect=True)


@pytest.fixture
def met(monkeypatch):
    """List the errors that were met on the way."""
    errors, vendor_store = [], type(store_for(ALIAS))
    is_contention = vendor_store.is_contention

    def note(store, error):
        errors.append(error)
        return is_contention(store, error)

    monkeypatch.setattr(vendor_store, "is_contention", note)
    return errors


@contextlib.contextmanager
def after_a_read():
    with transaction.atomic(using=ALIAS):
        assert not Limit.objects.using(ALIAS).exists()
        yield


@by_level
@pytest.mark.parametrize("where", [contextlib.nullcontext, after_a_read])
def test_races_admit_each_quota_exactly(isolation, caplog, where):
    def hit(index):
        with where():
            return [[limiter.consume(policy, "k").allowed for policy in POLICIES] for _ in range(3)]

    answers = [allowed for answer in in_threads(THREADS, hit) for allowed in answer]
    assert [sum(column) for column in zip(*answers, strict=True)] == [7] * len(POLICIES)
    assert caplog.records == []


@by_level
@pytest.mark.parametrize("where", [contextlib.nullcontext, after_a_read])
def test_races_for_several_limits_at_once_are_all_or_nothing(isolation, caplog, where):
    def hit(index):
        names = POLICIES if index % 2 else reversed(POLICIES)
        keys = dict.fromkeys(names, "k")
        with where():
            return [limiter.consume_all(keys).allowed for _ in range(3)]

    answers = [allowed for answer in in_threads(THREADS, hit) for allowed in answer]
    assert sum(answers) == 7
    assert {policy.name: limiter.peek(policy, "k").used for policy in POLICIES} == dict.fromkeys(
        ALGORITHMS, 7
    )
    assert caplog.records == []


@by_level
def test_t03_callers_transaction_sees_what_others_have_counted_and_does_not_fail(isolation):
    """What others have counted since its first look is no conflict of the caller's own."""
    with transaction.atomic(using=ALIAS):
        assert not Limit.objects.using(ALIAS).exists()
        in_threads(2, lambda index: [limiter.consume(POLICIES[0], "k") for _ in range(2)])
        assert limiter.consume(POLICIES[0], "k").used == 5
        Limit.objects.using(ALIAS).create(name="mine", rate="5/m")
    assert Limit.objects.using(ALIAS).get().name == "mine"


class Interrupted:
    """A question that looks at a counter and moves it, which others have done in between so many times."""

    def __init__(self, times):
        self.times = times
        self.asked = 0

    def __call__(self, connection):
        self.asked += 1
        return in_transaction(connection, lambda: (True, self.move(connection)))

    def move(self, connection):
        with connection.cursor() as cursor:
            cursor.execute("SELECT sum(count) FROM ratelimit_app_counter")
            if self.asked <= self.times:
                in_threads(1, lambda index: store_for(ALIAS).advance(advance(ceiling=1_000)))
            cursor.execute("UPDATE ratelimit_app_counter SET count = count + 1")
            return cursor.rowcount


@repeatable
def test_conflict_with_what_was_seen_before_is_sent_again(isolation, met):
    put("k")
    question = Interrupted(3)
    assert store_for(ALIAS).retry(question) == 1
    assert (question.asked, len(met)) == (4, 3)
    assert counts() == {"k": 5}


@repeatable
def test_conflict_that_does_not_end_is_given_up_in_time(isolation, met, settings):
    settings.RATELIMIT_TIMEOUT = 0.3
    put("k")
    question = Interrupted(1_000)
    with pytest.raises(DatabaseError):
        store_for(ALIAS).retry(question)
    assert 1 <= question.asked < 1_000
    assert counts() == {"k": 1 + question.asked}
