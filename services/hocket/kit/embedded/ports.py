"""Chooses TCP ports on 127.0.0.1 and remembers them in a file.

Ports are taken from below the kernel's ephemeral range. Inside that range, a client that keeps
reconnecting to a server which is down can be given the server's own port as its source port; it is
then connected to itself, and the server cannot come back.
"""

import random
import socket
from pathlib import Path

from hocket.kit.embedded.errors import NoFreePort

LOOPBACK = "127.0.0.1"
LOWEST_PORT = 10_240
HIGHEST_PORT = 65_535
SMALLEST_RANGE = 1_000
EPHEMERAL_DEFAULT_LOW = 32_768
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORT_ATTEMPTS = 200


def remembered_port(file: Path) -> int:
    """Return the port stored in `file` if it is free, otherwise a new one, which is then stored."""
    try:
        port = int(file.read_text("ascii"))
    except (FileNotFoundError, ValueError):
        return new_port(file)
    return port if 0 < port <= HIGHEST_PORT and port_is_free(port) else new_port(file)


def new_port(file: Path) -> int:
    """Choose a free port at random and store it in `file`; raises NoFreePort."""
    low, high = _range()
    dice = random.SystemRandom()
    for _ in range(PORT_ATTEMPTS):
        port = dice.randint(low, high)
        if port_is_free(port):
            file.write_text(f"{port}\n", "ascii")
            return port
    raise NoFreePort(attempts=PORT_ATTEMPTS, low=low, high=high)


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _range() -> tuple[int, int]:
    try:
        ephemeral_low = int(EPHEMERAL_RANGE_FILE.read_text("ascii").split()[0])
    except FileNotFoundError:
        ephemeral_low = EPHEMERAL_DEFAULT_LOW
    if ephemeral_low - LOWEST_PORT >= SMALLEST_RANGE:
        return LOWEST_PORT, ephemeral_low - 1
    return LOWEST_PORT, HIGHEST_PORT
