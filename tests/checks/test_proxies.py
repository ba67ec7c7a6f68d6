import pytest
from django.core.checks import run_checks


def found():
    return [message.id for message in run_checks() if message.id.startswith("ratelimit_app.")]


@pytest.mark.parametrize(
    ("trusted", "reported"),
    [
        (["0.0.0.0/0"], ["W010"]),
        (["10.0.0.0/8", "::/0"], ["W010"]),
        (["0.0.0.0/1", "128.0.0.0/1"], ["W010"]),
        (["10.0.0.0/8", "::1"], []),
        (["0.0.0.0/1"], []),
        ([], []),
        (3, []),
        (10, []),
        (11, ["W011"]),
        (10**6, ["W011"]),
        ("rubbish", ["E011"]),
    ],
)
def test_trust_in_those_who_are_no_proxies_is_warned_of(trusted, reported, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    assert found() == [f"ratelimit_app.{number}" for number in reported]
