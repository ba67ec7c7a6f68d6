import pytest
from django.core.checks import run_checks
from django.db import connections


def found():
    return [message.id for message in run_checks() if message.id == "ratelimit_app.W007"]


@pytest.mark.parametrize(
    ("counters", "atomic", "reports"),
    [
        ("default", "default", 1),
        ("ratelimit", "ratelimit", 1),
        ("ratelimit", "default", 0),
        ("ratelimit", None, 0),
        ("nosuch", "default", 0),
    ],
)
def test_alias_on_which_every_view_is_in_a_transaction_is_reported(
    counters, atomic, reports, settings, monkeypatch
):
    settings.RATELIMIT_DATABASE = counters
    if atomic:
        monkeypatch.setitem(connections[atomic].settings_dict, "ATOMIC_REQUESTS", True)
    assert found() == ["ratelimit_app.W007"] * reports
