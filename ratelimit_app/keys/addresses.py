"""The caller's address, and whom it counts as."""

import ipaddress
import logging

from django.http import HttpRequest

from ratelimit_app.conf import conf
from ratelimit_app.keys import proxies
from ratelimit_app.reporting import report


def ip(request: HttpRequest) -> str:
    """Count by address: an IPv4 address, or the leading /64 (``RATELIMIT_IPV6_PREFIX``) of an IPv6 one.

    An IPv4-mapped IPv6 address is the IPv4 address. The address is ``REMOTE_ADDR``, or what proxies
    wrote that ``RATELIMIT_TRUSTED_PROXIES`` trusts. What is no address counts under its own text.
    """
    remote = request.META.get("REMOTE_ADDR") or ""
    address = _forwarded(request, remote) or remote
    try:
        return f"ip:{client(address)}"
    except ValueError:
        report(
            logging.WARNING,
            "REMOTE_ADDR is not an address: %.60r; it counts under its own text",
            seen=[remote],
        )
        return f"ip:?{remote}"  # no address begins with a question mark


def client(remote: str) -> str:
    """Return whom ``ip`` counts an address as; raise ``ValueError`` for what is no address."""
    address = ipaddress.ip_address(remote)
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    network = ipaddress.ip_network((int(address), conf.ipv6_prefix), strict=False)
    return str(network)


def _forwarded(request: HttpRequest, remote: str) -> str | None:
    """Return the address that trusted proxies tell of; ``None`` if there is none, which is reported."""
    if not conf.trusted_proxies:
        return None
    try:
        return proxies.client_address(remote, request.headers.get(conf.proxy_header))
    except ValueError as error:
        report(logging.WARNING, "A request counts by the address of the proxy: %s", error)
        return None
