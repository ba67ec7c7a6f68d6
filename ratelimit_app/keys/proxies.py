"""Whom the proxies in front saw: trusted networks or a number of hops, walked from the near end.

A client may send such a header too, and a proxy appends to it: only what one of the project's own
proxies wrote is believed, and that is at the right.
"""

import functools
import ipaddress
import itertools
import re
from collections.abc import Iterator, Sequence

from ratelimit_app.conf import conf

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: An address with what proxies put around it: a port, and the brackets of IPv6. No zone id: it means
#: something on one host alone.
_NODE = re.compile(r"([0-9.]+)(?::[0-9]{1,5})?|\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")

#: An element of ``Forwarded`` (RFC 7239, section 4), in a text that is turned round: what is between
#: commas, but for those in quotes. A quote inside quotes has a backslash before it, the first of them never.
_TURNED_ELEMENT = re.compile(r"""((?:"(?:[^"]|"(?=\\))*"(?!\\)|[^",])*)(,|\Z)""")

#: A parameter of an element, and what ends it. A port without quotes is let pass.
_PAIR = re.compile(
    r"""[ \t]*([!#$%&'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s"\\,;]+))[ \t]*(;|\Z)"""
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


def _behind_hops(hops: int, entries: Iterator[str]) -> str:
    entry = next(itertools.islice(entries, hops - 1, None), None)
    if entry is None:
        raise ValueError(f"{conf.proxy_header} has fewer than {hops} entries")
    return _found(_node(entry))


def _behind_networks(trusted: Sequence[Network], entries: Iterator[str]) -> str:
    found = None
    for node in map(_node, entries):
        if node is None:
            break
        found = node
        if not _is_trusted(node, trusted):
            break
    # One of the proxies' own hosts may have asked: then the last one seen is the furthest.
    return _found(found)


def _found(node: str | None) -> str:
    """Return an address; what stands in its place is a stranger's text, and not repeated."""
    if node is None:
        raise ValueError(f"{conf.proxy_header} has no address where one should be")
    return node


def _entries(header: str | None) -> Iterator[str]:
    """Return the entries from the near end on."""
    if header is None:
        raise ValueError(f"there is no {conf.proxy_header}")
    return _rfc7239(header) if conf.proxy_header.lower() == "forwarded" else reversed(header.split(","))


def _rfc7239(header: str) -> Iterator[str]:
    """Return the ``for`` of each element from the near end on, an empty text where there is none.

    From that end, because a client could open a quote that swallows what a proxy appends.
    """
    turned, position, comma = header[::-1], 0, ","
    while comma:
        element = _TURNED_ELEMENT.match(turned, position)
        if element is None:  # a quote that is not closed: what is further out is nobody's
            yield ""
            return
        yield _for(element[1][::-1])
        position, comma = element.end(), element[2]


def _for(element: str) -> str:
    """Return whom an element was sent for; an empty text where it does not say, or is not by the grammar."""
    pairs: dict[str, str] = {}
    position, end = 0, ";"
    while end:
        pair = _PAIR.match(element, position)
        if pair is None or (name := pair[1].lower()) in pairs:
            return ""
        pairs[name] = pair[3] or re.sub(r"\\(.)", r"\1", pair[2])
        position, end = pair.end(), pair[4]
    return pairs.get("for", "")


def _node(entry: str) -> str | None:
    """Return the address in an entry, ``None`` if there is none."""
    match = _NODE.fullmatch(entry.strip(" \t"))
    address = _address(match[match.lastindex or 0]) if match else None
    return None if address is None else str(address)


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
