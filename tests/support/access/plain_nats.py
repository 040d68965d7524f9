"""A NATS server with nothing of Hocket, and without JetStream."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hocket.kit.embedded.nats import nats_program
from hocket.kit.embedded.ports import LOOPBACK, remembered_port


@contextmanager
def plain_nats(folder: Path) -> Iterator[str]:
    """Run one while the block lasts; yield its address, which may take a moment to answer."""
    port = remembered_port(folder / "port")
    command = [nats_program(), "-a", LOOPBACK, "-p", str(port)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"{LOOPBACK}:{port}"
    finally:
        server.kill()
        server.wait(10)
