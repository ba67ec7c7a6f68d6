"""What a caller is told of others, and of what staff wrote: nothing."""

import pytest
from django.test import Client
from model_bakery import baker

from ratelimit_app.models import Limit, LimitOverride
from tests.field_reports.asking import ENTRIES

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.field_reports.urls")]

ADDRESS = "203.0.113.77"


@pytest.mark.parametrize("accept", ["*/*", "text/html"])
@pytest.mark.parametrize("effect", ["rate", "blocked", "exempt"])
@pytest.mark.parametrize("entry", [*ENTRIES, "/ratelimit/status/"])
def test_what_staff_wrote_and_whose_key_it_is_are_in_no_answer(entry, effect, accept, settings, clock):
    settings.RATELIMIT_LIMITS = {}
    settings.RATELIMIT_HEADERS = ["ietf", "x_ratelimit"]
    limit = baker.make(Limit, name="case", rate="5/min", key="ip", path="^/plain", note="the-note")
    rate = "1/min" if effect == "rate" else ""
    baker.make(LimitOverride, limit=limit, key=ADDRESS, effect=effect, rate=rate, reason="the-reason")
    answers = [Client().get(entry, headers={"Accept": accept}, REMOTE_ADDR=ADDRESS) for _ in range(2)]
    refused = entry in ENTRIES and effect != "exempt"
    assert answers[-1].status_code == (429 if refused else 200)
    for answer in answers:
        told = repr(list(answer.items())) + answer.text
        for text in ("the-note", "the-reason", ADDRESS, "ip:"):
            assert text not in told
