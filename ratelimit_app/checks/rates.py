"""Whether limits in code can be used, and the system check of those in REST framework's settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks

from ratelimit_app import drf_rates
from ratelimit_app.limits import declared


@checks.register()
def check_drf_rates(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report a rate of Django REST framework's throttles that is no limit here."""
    try:
        check_declared(drf_rates.specs())
    except ValueError as error:
        return [
            checks.Error(
                f"REST_FRAMEWORK['DEFAULT_THROTTLE_RATES']: {error}",
                hint="Mend the rate, or declare the limit in RATELIMIT_LIMITS.",
                id="ratelimit_app.E004",
            )
        ]
    return []


def check_declared(specs: Mapping[str, object]) -> None:
    """Raise ``ValueError`` for the first limit that cannot be used."""
    for name, spec in specs.items():
        try:
            declared(name, spec).full_clean(exclude=["name"], validate_unique=False)
        except Exception as error:  # whatever a developer wrote there
            raise ValueError(f"{name!r}: {error}") from error
