"""A NATS server without any configuration of Hocket's, and without JetStream."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hocket.kit.embedded.nats import nats_program
from hocket.kit.embedded.ports import LOOPBACK, remembered_port


@contextmanager
def plain_nats(folder: Path) -> Iterator[str]:
    """Run a server inside the block; yield its address. It may take a moment to accept connections."""
    port = remembered_port(folder / "port")
    command = [nats_program(), "-a", LOOPBACK, "-p", str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"{LOOPBACK}:{port}"
    finally:
        server.kill()
        server.wait(10)
