"""Which addresses what users name may have: public ones.

Names are resolved for each connection and the connection goes to the address that was checked, so that
a name cannot mean another address a moment later.
"""

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

_TRANSLATED = (
    IPv6Network("64:ff9b::/96"),
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("::/96"),
)
"""IPv4 addresses behind a translator (RFC 6052, RFC 8215), and as IPv6 had them first (RFC 4291)."""
_SITE_LOCAL = IPv6Network("fec0::/10")


def is_public(text: str) -> bool:
    """Tell whether an address can be reached from anywhere, whatever IPv4 address is inside it. One that
    is not written as usual (`127.1`, `2130706433`) is not: systems read it, each in its way."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address in _SITE_LOCAL:
        return False
    return all(one.is_global and not one.is_multicast for one in (address, *_inside(address)))


def is_address(host: str) -> bool:
    """Tell whether a host is an address, or what HTTP clients take for one: they ask no resolver about
    it, and the system makes an address of it (`127.1`, `2130706433`, `0177.0.0.1`)."""
    return ":" in host or host.replace(".", "").isdigit()


def _inside(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    if isinstance(address, IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _TRANSLATED):
        found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in found if one is not None]


class PublicResolver(AbstractResolver):
    """Resolves names to public addresses; raises what `refused` makes of a name that has another."""

    def __init__(self, refused: Callable[[str], Exception]) -> None:
        self._refused = refused
        self._resolver = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return where a host is."""
        found = await self._resolver.resolve(host, port, family)
        if not all(is_public(one["host"]) for one in found):
            raise self._refused(host)
        return found

    async def close(self) -> None:
        """Release what it holds."""
        await self._resolver.close()
