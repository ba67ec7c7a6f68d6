"""What a view does after it was counted changes no count; what the limiter does breaks no transaction."""

from collections import Counter

import pytest
from django.test import Client

from project.models import ApiCall
from ratelimit_app import limiter
from tests.transactions.places import everywhere
from tests.transactions.views import DRF_ENDINGS, ENDINGS, ENTRIES, MOMENTS

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.transactions.views"),
    pytest.mark.usefixtures("clock"),
]


def ask(path, times, address):
    client = Client(raise_request_exception=False, REMOTE_ADDR=address)
    return [client.get(f"/{path}").status_code for _ in range(times)]


def used(address):
    return limiter.peek("case", f"ip:{address}").used


@everywhere
@pytest.mark.parametrize("entry", ENTRIES)
def test_attempt_stays_counted_however_the_view_ends(place, entry):
    endings = {**ENDINGS, **(DRF_ENDINGS if entry == "drf" else {})}
    client = {name: f"192.0.2.{number}" for number, name in enumerate(endings)}
    answers = {name: ask(f"{entry}/end/{name}", 4, client[name]) for name in endings}
    assert answers == {name: [status] * 2 + [429] * 2 for name, (_, status, _) in endings.items()}
    assert {name: used(client[name]) for name in endings} == dict.fromkeys(endings, 2)
    # What the view wrote itself is kept or not as it would be without a limiter.
    kept = {name: ApiCall.objects.filter(client=name).count() for name in endings}
    assert kept == {name: 2 if stays else 0 for name, (_, _, stays) in endings.items()}


@everywhere
def test_call_at_any_moment_of_a_transaction_counts_and_leaves_it_whole(place):
    client = {name: f"192.0.2.{number}" for number, name in enumerate(MOMENTS)}
    answers = {name: tuple(ask(f"consume/{name}", 3, client[name])) for name in MOMENTS}
    assert answers == dict.fromkeys(MOMENTS, (200, 200, 429))
    assert {name: used(client[name]) for name in MOMENTS} == dict.fromkeys(MOMENTS, 2)
    written = Counter(ApiCall.objects.values_list("client", flat=True))
    assert written == {"before": 9, "after": 3 * len(MOMENTS)}
