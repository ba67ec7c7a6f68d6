"""What applies to single keys and networks in place of a limit's own rate."""

import dataclasses
import ipaddress
import re
from collections.abc import Iterable, Iterator

from ratelimit_app import keys
from ratelimit_app.policy import Policy

EFFECTS = RATE, EXEMPT, BLOCKED = "rate", "exempt", "blocked"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: The leading 96 bits of an IPv4 address in the clothes of IPv6.
_MAPPED = 0xFFFF

_LIKE_AN_ADDRESS = re.compile(r"ip:(?!\?).*|[0-9]+(\.[0-9]+){3}(/.*)?|[0-9a-fA-F:.]*::[0-9a-fA-F:.]*(/.*)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Override:
    """What applies to one key: ``effect`` is ``rate`` (then by ``policy``), ``exempt`` or ``blocked``.

    ``ends_at`` is the instant, in microseconds since the epoch, from which on it no longer counts;
    ``None``: for good.
    """

    effect: str
    policy: Policy | None = None
    ends_at: int | None = None

    def is_over(self, now: int) -> bool:
        return self.ends_at is not None and now >= self.ends_at


class Overrides:
    """The overrides of one limit, to be found by the key of a call.

    ``placed`` has each with its ``place``. Networks are kept by the length of their prefix, so that a
    thousand of them are found as fast as one.
    """

    __slots__ = ("_exact", "_networks")

    def __init__(self, placed: Iterable[tuple[Network | str, Override]] = ()) -> None:
        self._exact: dict[str, Override] = {}
        networks: dict[tuple[int, int], dict[int, Override]] = {}
        for place, override in placed:
            if isinstance(place, str):
                self._exact[place] = override
            else:
                members = networks.setdefault((place.version, place.prefixlen), {})
                members[_leading(place, place.prefixlen)] = override
        self._networks = [(*kind, networks[kind]) for kind in sorted(networks, reverse=True)]

    def find(self, key: str, now: int) -> Override | None:
        """Return what applies to a key at an instant: its own override, else that of the longest prefix."""
        return next((found for found in self._matching(key) if not found.is_over(now)), None)

    def _matching(self, key: str) -> Iterator[Override]:
        if key in self._exact:
            yield self._exact[key]
        # A text of the project's own that reads like an address is none: it has no "ip:" before it.
        network = network_of(key) if self._networks and key.startswith("ip:") else None
        if network is None:
            return
        for version, prefix, members in self._networks:
            if version == network.version and prefix <= network.prefixlen:
                found = members.get(_leading(network, prefix))
                if found:
                    yield found


#: What a limit has that nothing is made an exception of.
NONE = Overrides()


def normal_key(text: str) -> str:
    """Return the one way of writing whom an override is for: addresses and networks behind ``ip:``.

    Raises ``ValueError`` as ``place`` does.
    """
    found = place(text)
    if isinstance(found, str):
        return found
    is_whole = found.version == 4 and found.prefixlen == found.max_prefixlen
    return f"ip:{found.network_address if is_whole else found}"


def place(text: str) -> Network | str:
    """Read whom an override is for: a network, or any other text, which is a key as it is.

    An address is the network that ``keys.ip`` counts as one client. Raises ``ValueError`` for what
    looks like an address and is none.
    """
    key = text.strip()
    network = network_of(key)
    if isinstance(network, ipaddress.IPv6Network) and "/" not in key:
        return ipaddress.ip_network(keys.client(str(network.network_address)))
    if network:
        return network
    if not key or _LIKE_AN_ADDRESS.fullmatch(key):
        raise ValueError(
            "key: an address, a network (203.0.113.0/24, no bits set behind its prefix) or a key as "
            f"decisions show it (user:42), got {text!r}"
        )
    return key


def network_of(key: str) -> Network | None:
    """Return the address or network that a key is, with or without ``ip:``; ``None`` if it is none."""
    try:
        network = ipaddress.ip_network(key.removeprefix("ip:"))
    except ValueError:
        return None
    number, prefix = int(network.network_address), network.prefixlen
    if network.version == 6 and prefix >= 96 and number >> 32 == _MAPPED:
        return ipaddress.IPv4Network((number & 0xFFFFFFFF, prefix - 96))
    if network.version == 6 and "%" in key:  # a zone, which is the host's own business
        return ipaddress.IPv6Network((number, prefix))
    return network


def _leading(network: Network, prefix: int) -> int:
    """Return the leading bits of a network's address, as a number."""
    return int(network.network_address) >> (network.max_prefixlen - prefix)
