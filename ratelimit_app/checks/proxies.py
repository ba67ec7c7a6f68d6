"""System checks of whom the proxies' header is believed from."""

import ipaddress
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core import checks

from ratelimit_app.conf import conf
from ratelimit_app.keys import proxies

#: More proxies than stand before anybody.
MANY = 10


@checks.register()
def check_trust(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Report networks that together hold every address, and more proxies than anybody has."""
    try:
        trusted = proxies.parse(conf.trusted_proxies)
    except ValueError:  # E011 speaks of it
        return []
    if isinstance(trusted, int):
        return [_many(trusted)] if trusted > MANY else []
    return [_everybody()] if _holds_everybody(trusted) else []


def _everybody() -> checks.CheckMessage:
    return checks.Warning(
        "RATELIMIT_TRUSTED_PROXIES trusts every address: whoever calls can name any other as its own.",
        hint="List the networks that your proxies are in, or say how many proxies stand in front.",
        id="ratelimit_app.W010",
    )


def _many(hops: int) -> checks.CheckMessage:
    return checks.Warning(
        f"RATELIMIT_TRUSTED_PROXIES says that {hops} proxies stand in front of every request: where they do "
        "not, whoever calls writes the missing entries of the header, and so names any address as its own.",
        hint="Count the proxies that append to the header, or list the networks that they are in.",
        id="ratelimit_app.W011",
    )


def _holds_everybody(networks: Sequence[proxies.Network]) -> bool:
    four = [network for network in networks if isinstance(network, ipaddress.IPv4Network)]
    six = [network for network in networks if isinstance(network, ipaddress.IPv6Network)]
    merged: list[proxies.Network] = [*ipaddress.collapse_addresses(four)]
    merged += ipaddress.collapse_addresses(six)
    return any(network.prefixlen == 0 for network in merged)
