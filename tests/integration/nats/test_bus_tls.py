"""The bus over TLS with certificates on both sides, against a real server."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.kit.embedded.ports import LOOPBACK, remembered_port
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from support.servers.certificates import Authority

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")
SERVER = Path(sys.executable).parent / "nats-server"
BOUND_S = 20


class TlsServer:
    """A NATS server that speaks TLS alone, and can be started again with other certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = remembered_port(folder / "port")
        self._process: subprocess.Popen[bytes] | None = None
        self.renew()
        self.start()

    def renew(self) -> None:
        """Replace all certificates by those of another authority, in the same files."""
        self.authority = Authority(self.folder / "tls")
        self.authority.issue("client")
        tls = self.authority.server_block("server")
        config = f"listen: {LOOPBACK}:{self.port}\n{tls}"
        (self.folder / "nats.conf").write_text(config)

    def start(self) -> None:
        self._process = subprocess.Popen(
            [SERVER, "-c", self.folder / "nats.conf"], stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def url(self, *kinds: str) -> str:
        files = {"ca": "ca.crt", "cert": "client.crt", "key": "client.key"}
        query = "&".join(f"{kind}={self.folder}/tls/{files[kind]}" for kind in kinds)
        # the second one is not there, as a server of a cluster that is down
        return f"tls://{LOOPBACK}:{self.port},{LOOPBACK}:1?{query}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path)
    yield server
    server.kill()


async def test_a_bus_shows_its_certificate_and_comes_back_with_a_renewed_one(
    server: TlsServer,
) -> None:
    bus = await Bus.connect(server.url("ca", "cert", "key"), name="test")
    got: asyncio.Queue[bytes] = asyncio.Queue()
    await bus.subscribe_raw("some.place", lambda message: got.put_nowait(message.data))
    try:
        await bus.nc.flush()
        for size in (1, 100_000, 1_000_000):  # many TLS records, too
            bus.publish_nowait("some.place", b"x" * size)
            async with asyncio.timeout(BOUND_S):
                assert len(await got.get()) == size
        server.kill()
        server.renew()
        back = asyncio.Event()
        bus.on_reconnect.append(back.set)
        server.start()
        async with asyncio.timeout(BOUND_S):
            await back.wait()
            bus.publish_nowait("some.place", b"again")
            assert await got.get() == b"again"
    finally:
        await bus.close()


@pytest.mark.parametrize("kinds", [("ca",), ("cert", "key")])
async def test_without_a_certificate_or_its_authority_nobody_is_spoken_to(
    server: TlsServer, kinds: tuple[str, ...]
) -> None:
    with pytest.raises(BusUnavailable, match=r"(?i)tls|ssl|certificate|no answer"):
        await Bus.connect(server.url(*kinds), name="test", timeout_s=1.5)
