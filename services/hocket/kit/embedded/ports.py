"""Chooses TCP ports on 127.0.0.1, or another address, and remembers them in a file.

Ports are taken from below the kernel's ephemeral range. Inside that range, a client that keeps
reconnecting to a server which is down can be given the server's own port as its source port; it is
then connected to itself, and the server cannot come back.

A server may listen only seconds after its port was chosen. Until then, the name of a socket keeps
other processes of this machine from choosing the same one.
"""

import errno
import os
import random
import socket
import sys
from pathlib import Path

from hocket.kit.embedded.errors import NoFreePort

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 10_240
HIGHEST_PORT = 65_535
SMALLEST_RANGE = 1_000
EPHEMERAL_DEFAULT_LOW = 32_768
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_ATTEMPTS = 200
MAX_CLAIMS = 64
"""So many of its latest choices a process keeps for itself."""

_claims: dict[int, int] = {}
"""The descriptor of the socket that keeps each port."""


def remembered_port(file: Path, host: str = LOOPBACK) -> int:
    """Return the port stored in `file` if it is free, otherwise a new one, which is then stored."""
    try:
        port = int(file.read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return new_port(file, host)
    is_free = 0 < port <= HIGHEST_PORT and port_is_free(port, host)
    is_ours = is_free and (port in _claims or _claim(port))
    return port if is_ours else new_port(file, host)


def new_port(file: Path, host: str = LOOPBACK) -> int:
    """Choose a free port at random and store it in `file`; raises NoFreePort."""
    low, high = _range()
    dice = random.SystemRandom()
    for _ in range(PORT_ATTEMPTS):
        port = dice.randint(low, high)
        if port not in _claims and port_is_free(port, host) and _claim(port):
            file.write_text(f"{port}\n", "ascii")
            return port
    raise NoFreePort(attempts=PORT_ATTEMPTS, low=low, high=high)


def port_is_free(port: int, host: str = LOOPBACK) -> bool:
    """Tell whether a server could listen on this port of an address now. If this machine does not have
    the address, no port is taken there: the server itself says what is wrong. `::` is all addresses,
    also of IPv4, as the REST API listens on both."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (socket.gaierror, TypeError):  # it is no name of a host, or cannot be one
        return True
    except OSError as error:
        return error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def _claim(port: int) -> bool:
    """Keep a port for this process; return whether no other process has. It ends with the process.

    Linux knows sockets with a name and no file; elsewhere nobody is kept from anything.
    """
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0hocket port {port}")
    except OSError:
        claim.close()
        return False
    _claims[port] = claim.detach()
    if len(_claims) > MAX_CLAIMS:
        os.close(_claims.pop(next(iter(_claims))))
    return True


def _range() -> tuple[int, int]:
    try:
        ephemeral_low = int(EPHEMERAL_RANGE_FILE.read_text("ascii").split()[0])
    except FileNotFoundError:
        ephemeral_low = EPHEMERAL_DEFAULT_LOW
    if ephemeral_low - LOWEST_PORT >= SMALLEST_RANGE:
        return LOWEST_PORT, ephemeral_low - 1
    return LOWEST_PORT, HIGHEST_PORT
