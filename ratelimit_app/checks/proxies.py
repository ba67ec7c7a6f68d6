"""The system check of whom the proxies' header is believed from."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks

from ratelimit_app.conf import conf
from ratelimit_app.keys import proxies


@checks.register()
def check_trust(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report networks that together hold every address."""
    try:
        trusted = proxies.parse(conf.trusted_proxies)
    except ValueError:  # E011 speaks of it
        return []
    if isinstance(trusted, int) or not _holds_everybody(trusted):
        return []
    return [
        checks.Warning(
            "RATELIMIT_TRUSTED_PROXIES trusts every address: whoever calls can name any other as its own.",
            hint="List the networks that your proxies are in, or say how many proxies stand in front.",
            id="ratelimit_app.W010",
        )
    ]


def _holds_everybody(networks: Sequence[proxies.Network]) -> bool:
    four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    merged: list[proxies.Network] = [*ipaddress.collapse_addresses(four)]
    merged += ipaddress.collapse_addresses(six)
    return any(network.prefixlen == 0 for network in merged)
