"""Restricts the hosts that users name to public addresses.

Names are resolved for each connection, and the connection goes to the address that was checked, so that
a name cannot resolve to another address a moment later.
"""

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult

from hocket.kit.name_lookups import NameResolver

_TRANSLATED = (
    IPv6Network("64:ff9b::/96"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("::/96"),
)
"""Networks that embed IPv4 addresses: for translators (RFC 6052, RFC 8215), and the deprecated
IPv4-compatible addresses (RFC 4291)."""
_SITE_LOCAL = IPv6Network("fec0::/10")


def is_public(text: str) -> bool:
    """Tell whether an address, and any IPv4 address embedded in it, is globally reachable. Addresses in
    unusual notation (`127.1`, `2130706433`) are not public, because systems parse them differently."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address in _SITE_LOCAL:
        return False
    return all(one.is_global and not one.is_multicast for one in (address, *_inside(address)))


def is_address(host: str) -> bool:
    """Tell whether a host is an address, or something that HTTP clients treat as one: they do not
    resolve it, and the system converts it to an address (`127.1`, `2130706433`, `0177.0.0.1`)."""
    return ":" in host or host.replace(".", "").isdigit()


def _inside(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    if isinstance(address, IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _TRANSLATED):
        found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in found if one is not None]


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses; raises what `refused` returns for a name with any other."""

    def __init__(self, refused: Callable[[str], Exception]) -> None:
        self._refused = refused
        self._resolver = NameResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a host, all of which are public."""
        found = await self._resolver.resolve(host, port, family)
        if not all(is_public(one["host"]) for one in found):
            raise self._refused(host)
        return found

    async def close(self) -> None:
        """Release the underlying resolver."""
        await self._resolver.close()
