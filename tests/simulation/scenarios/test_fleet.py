import itertools
import random

import pytest

from ratelimit_app.simulation.scenarios import fleet
from ratelimit_app.simulation.trials import limits_of

NAMES = ["fixed_window", "sliding_log", "sliding_window", "token_bucket"]


@pytest.fixture(scope="module")
def result():
    return fleet.run(limits_of("300/s", NAMES, 30), random.Random(1))


def rows(result):
    (table,) = result.tables
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def test_each_algorithm_meets_ten_hosts_and_then_forty(result):
    assert [row["hosts"] for row in rows(result)] == [10, 40] * len(NAMES)


def test_retries_and_the_calls_of_batches_are_counted(result):
    for row in rows(result):
        sent = row["calls"] + row["in batches"] + row["retries"]
        assert sent == row["passed"] + row["refused"]
        assert row["in batches"] == 100 * row["hosts"]
        assert row["retries"] > 0


def test_each_algorithm_meets_the_same_hosts(result):
    assert len({(row["calls"], row["in batches"]) for row in rows(result)}) == 2


def test_total_stays_within_the_limit_however_many_hosts_there_are(result):
    for row in rows(result):
        bucket = row["algorithm"] == "token_bucket, burst 30"
        assert row["in a window"] <= (330 if bucket else 300)
    tallies = dict(result.tallies)
    assert tallies["sliding_log"].peaks[0].most == 300
    assert 300 < tallies["token_bucket, burst 30"].peaks[0].most <= 330


def test_forty_hosts_get_what_the_limit_gives_and_no_more(result):
    for row in rows(result)[1::2]:
        # Refused calls are tried again for some seconds after the hosts have ended.
        assert 2_900 <= row["passed"] <= 15 * 300
        assert 290 <= row["passed in 1 s"] <= 310


def test_hosts_that_ask_for_less_than_the_limit_get_all_that_they_ask_for():
    (limit,) = limits_of("100000/s", ["fixed_window"], None)
    for row in rows(fleet.run([limit], random.Random(1))):
        assert row["passed in 1 s"] == round((row["calls"] + row["in batches"]) / 10)


def test_call_that_is_refused_is_tried_again_twice_and_not_before_it_may():
    (limit,) = limits_of("1/hour", ["fixed_window"], None)
    hosts = fleet.Fleet(0, random.Random(1))
    sent = list(hosts)
    assert {sending.kind for sending in sent} == {"call", "batch"}
    trial = fleet.Trial("", [fleet.Tier(limit)])
    decision = [trial.take(fleet.Arrival(0, "k")) for _ in range(2)][1]
    retries = [sent[0]]
    while len(retries) < 9:
        hosts.refused(retries[-1], decision)
        again = next(iter(hosts), None)
        if again is None:
            break
        retries.append(again)
    waits = [(after.at - before.at) / 1_000_000 for before, after in itertools.pairwise(retries)]
    assert len(waits) == 2
    assert all(3_600 <= wait < 3_601 for wait in waits)
