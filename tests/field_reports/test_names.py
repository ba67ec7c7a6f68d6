"""Report S02: an attacker who takes another name for each request."""

import json
import re

import pytest
from django.test import Client

from ratelimit_app.models import Counter
from tests.field_reports.asking import make_limit
from tests.field_reports.test_prune import prune

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

REQUESTS = 10_000

#: Longer than Django lets a project read by default.
LONGEST = 8 * 2**20


@pytest.fixture(autouse=True)
def limits(clock, settings):
    settings.MIDDLEWARE = ["ratelimit_app.middleware.RateLimitMiddleware"]
    make_limit("30/min", "by-address", "^/body/", key="ip")
    make_limit("5/min", "by-name", "^/body/", key="field:username")


def ask_as(client, name):
    body = json.dumps({"username": name})
    answer = client.post(
        "/body/stream", body, content_type="application/json", headers={"X-Api-Key": name[:4_000]}
    )
    return answer.status_code


def assert_few_small_rows_that_go(clock):
    """Beside the address, only the names of the thirty requests that got in have a row."""
    assert Counter.objects.count() == 1 + 30
    assert all(re.fullmatch(r"[!-~]{1,255}", key) for key in Counter.objects.values_list("key", flat=True))
    clock.advance(120)
    assert (prune(), Counter.objects.count()) == (31, 0)


def test_s02_names_without_end_make_no_rows_without_end(clock):
    """What the limit by address refuses starts no counter, however many names and keys it has."""
    client = Client()
    answers = [ask_as(client, f"name{number}") for number in range(REQUESTS)]
    assert answers == [200] * 30 + [429] * (REQUESTS - 30)
    assert_few_small_rows_that_go(clock)


def test_s02_names_of_any_length_make_rows_of_one_length(clock, settings):
    """A name of 8 MB takes no more room than one of a letter."""
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * LONGEST
    lengths = [min(2**number, LONGEST) for number in range(30)]
    answers = [
        ask_as(Client(), f"{number:02}" + "a" * length) for number, length in enumerate([*lengths, LONGEST])
    ]
    assert answers == [200] * 30 + [429]
    assert_few_small_rows_that_go(clock)
