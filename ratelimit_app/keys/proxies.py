"""Whom the proxies in front saw: trusted networks or a number of hops, walked from the near end.

A client may send such a header too, and a proxy appends to it: only what one of the project's own
proxies wrote is believed, and that is at the right.
"""

import functools
import ipaddress
import re
from collections.abc import Sequence

from ratelimit_app.conf import conf

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: An address with what proxies put around it: a port, and the brackets of IPv6. No zone id: it means
#: something on one host alone.
_NODE = re.compile(r"([0-9.]+)(?::[0-9]{1,5})?|\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")

#: A parameter of ``Forwarded`` (RFC 7239, section 4), and what ends it. A port without quotes is let pass.
_PAIR = re.compile(
    r"""[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"\\,;]+))[ \t]*([;,]|\Z)"""
)


def client_address(remote: str, header: str | None) -> str:
    """Return the address of the client behind the trusted proxies: ``remote`` if it is none of them.

    ``header`` is the text of the header in which they write, ``None`` if there is none. Raises
    ``ValueError`` where it does not tell, or the setting is wrong.
    """
    trusted = parse(conf.trusted_proxies)
    if isinstance(trusted, int):
        return _behind_hops(trusted, _entries(header))
    if not _is_trusted(remote, trusted):
        return remote
    return _behind_networks(trusted, _entries(header))


def parse(setting: object) -> int | tuple[Network, ...]:
    """Read ``RATELIMIT_TRUSTED_PROXIES``; raise ``ValueError`` for what it cannot be."""
    if type(setting) is int and setting >= 0:
        return setting
    if isinstance(setting, list | tuple) and all(isinstance(item, str) for item in setting):
        return _networks(tuple(setting))
    raise ValueError(f"a number of proxies from 0, or a list of networks as texts, got {setting!r}")


def _behind_hops(hops: int, entries: Sequence[str]) -> str:
    if len(entries) < hops:
        raise ValueError(f"{conf.proxy_header} has fewer than {hops} entries")
    return _node(entries[-hops])


def _behind_networks(trusted: Sequence[Network], entries: Sequence[str]) -> str:
    if not entries:
        raise ValueError(f"there is no {conf.proxy_header}")
    for entry in reversed(entries):
        node = _node(entry)
        if not _is_trusted(node, trusted):
            return node
    # One of the proxies' own hosts asked: the last one seen is the furthest.
    return node


def _entries(header: str | None) -> list[str]:
    if header is None:
        return []
    return _rfc7239(header) if conf.proxy_header.lower() == "forwarded" else header.split(",")


def _rfc7239(header: str) -> list[str]:
    """Return the ``for`` of each element, in order.

    All of it is read by the grammar, or none: a client could open a quote that swallows what a proxy
    appends.
    """
    elements: list[dict[str, str]] = [{}]
    position, end = 0, ","
    while end:
        pair = _PAIR.match(header, position)
        if pair is None or (name := pair[1].lower()) in elements[-1]:
            raise ValueError(f"{conf.proxy_header} is not as RFC 7239 has it")
        elements[-1][name] = pair[3] or re.sub(r"\\(.)", r"\1", pair[2])
        position, end = pair.end(), pair[4]
        if end == ",":
            elements.append({})
    return [element.get("for", "") for element in elements]


def _node(entry: str) -> str:
    """Return the address in an entry; the text of one that has none is a stranger's, and not repeated."""
    match = _NODE.fullmatch(entry.strip(" \t"))
    address = _address(match[match.lastindex or 0]) if match else None
    if address is None:
        raise ValueError(f"{conf.proxy_header} has no address where one should be")
    return str(address)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    found = _address(address)
    return found is not None and any(found in network for network in trusted)


def _address(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


@functools.lru_cache(maxsize=8)
def _networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    networks = tuple(ipaddress.ip_network(text) for text in texts)
    for network in networks:
        if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped:
            raise ValueError(f"an IPv4-mapped network as the IPv4 network, got {str(network)!r}")
    return networks
