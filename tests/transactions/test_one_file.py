"""The exception: on SQLite, a transaction on the counters' own file takes the count along."""

import pytest
from django.db import connections, transaction
from django.test import Client

from project.models import ApiCall
from ratelimit_app import limiter
from ratelimit_app.models import Counter
from tests.races import in_threads
from tests.transactions.places import BOTH, SHARED

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.transactions.views"),
    pytest.mark.usefixtures("clock"),
]

in_one_file = pytest.mark.parametrize("place", [SHARED, BOTH], indirect=True)


def ask(path, times=4):
    client = Client(raise_request_exception=False)
    return [client.get(f"/{path}").status_code for _ in range(times)]


@in_one_file
@pytest.mark.parametrize("entry", ["decorated", "drf"])
def test_count_goes_back_with_the_transaction_that_it_is_in(place, entry):
    assert ask(f"{entry}/end/raises") == [500] * 4
    assert ask(f"{entry}/end/answers-400") == [400] * 2 + [429] * 2
    assert ApiCall.objects.count() == 2


@in_one_file
def test_count_of_the_middleware_is_made_before_the_transaction_and_stays(place):
    assert ask("plain/end/raises") == [500] * 2 + [429] * 2


@pytest.mark.parametrize("place", ["default"], indirect=True)
def test_transaction_that_has_read_before_others_wrote_is_refused_and_stays_whole(
    place, settings, monkeypatch
):
    settings.RATELIMIT_TIMEOUT = 0.1
    connections["default"].close()
    monkeypatch.setitem(connections["default"].settings_dict["OPTIONS"], "transaction_mode", "DEFERRED")
    with transaction.atomic():
        assert not ApiCall.objects.exists()
        in_threads(1, lambda index: ApiCall.objects.create(client="other") and None)
        assert not limiter.consume("case", "k").allowed
        assert not ApiCall.objects.exists()
    assert not Counter.objects.exists()
    connections["default"].close()
    assert ApiCall.objects.get().client == "other"
