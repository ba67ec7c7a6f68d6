import pytest
from django.core.checks import run_checks


def found():
    return [message.id for message in run_checks() if message.id.startswith("ratelimit_app.")]


@pytest.mark.parametrize(
    ("trusted", "is_everybody"),
    [
        (["0.0.0.0/0"], True),
        (["10.0.0.0/8", "::/0"], True),
        (["0.0.0.0/1", "128.0.0.0/1"], True),
        (["10.0.0.0/8", "::1"], False),
        (["0.0.0.0/1"], False),
        ([], False),
        (3, False),
    ],
)
def test_trust_in_everybody_is_warned_of(trusted, is_everybody, settings):
    settings.RATELIMIT_TRUSTED_PROXIES = trusted
    assert found() == ["ratelimit_app.W010"] * is_everybody
