"""Many clients of a real server: each request meets three limits, and none of them counts one too many."""

import collections
import contextlib
import http.client
from concurrent.futures import ThreadPoolExecutor

import pytest

from ratelimit_app.models import Counter
from tests.apart import databases, gunicorn

pytestmark = pytest.mark.django_db(transaction=True)

CLIENTS, REQUESTS = 40, 20

#: The next edge of these windows is in 2038.
WINDOW = "5000 day"
PER_ACCOUNT, PER_ADDRESS = 12, 50

#: How many clients come from each address: one for which the accounts are tighter, and some that are full.
CROWDS = [1, 2, 4, 5, 6, 6, 8, 8]
PASSED = [min(PER_ADDRESS, PER_ACCOUNT * crowd) for crowd in CROWDS]


def limits(everyone, algorithms):
    rates = {"everyone": everyone, "address": PER_ADDRESS, "account": PER_ACCOUNT}
    keys = {"everyone": "global", "address": "ip", "account": "header:X-Api-Key"}
    return {
        name: {"rate": f"{quota}/{WINDOW}", "key": keys[name], "algorithm": algorithm}
        for (name, quota), algorithm in zip(rates.items(), algorithms, strict=True)
    }


def ask(port, client):
    """Ask again and again, five times on each connection; return the statuses."""
    address = next(n for n in range(len(CROWDS)) if client < sum(CROWDS[: n + 1]))
    headers = {"X-Forwarded-For": f"198.51.100.{address}", "X-Api-Key": f"account-{client}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answers = []
    with contextlib.closing(connection):
        for request in range(REQUESTS):
            connection.request("GET", "/limited", headers=headers)
            answer = connection.getresponse()
            answer.read()
            answers.append(answer.status)
            if request % 5 == 4:
                connection.close()
    return answers


def used(limit):
    """Return the units that the rows of a limit say were used."""
    rows = Counter.objects.filter(key__startswith=f"{limit}@")
    return sorted(rows.values_list("count", flat=True))


@pytest.mark.parametrize(
    ("everyone", "algorithms", "passed"),
    [
        (250, ["token_bucket", "sliding_window", "fixed_window"], 250),
        (10_000, ["sliding_log", "fixed_window", "token_bucket"], sum(PASSED)),
    ],
    ids=["full", "roomy"],
)
def test_requests_pass_exactly_as_often_as_their_limits_allow(tmp_path, everyone, algorithms, passed):
    settings = {
        "DATABASES": databases(),
        "ROOT_URLCONF": "tests.load.urls",
        "RATELIMIT_TRUSTED_PROXIES": 1,
        "RATELIMIT_TIMEOUT": 60,  # a busy machine is no outage
        "RATELIMIT_LIMITS": limits(everyone, algorithms),
    }
    log = tmp_path / "log"
    with gunicorn(settings, log) as port, ThreadPoolExecutor(CLIENTS) as clients:
        asked = list(clients.map(lambda client: ask(port, client), range(CLIENTS)))
    answers = [answer for each in asked for answer in each]
    assert log.read_text() == ""
    statuses = collections.Counter(answers)
    assert statuses == {200: passed, 429: CLIENTS * REQUESTS - passed}
    for limit, algorithm in zip(("everyone", "address", "account"), algorithms, strict=True):
        if algorithm != "token_bucket":  # whose row holds an instant
            assert sum(used(limit)) == passed
    if passed == sum(PASSED):
        assert used("address") == PASSED
