"""The embedded servers let nobody in without the password, and listen nowhere else."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable

TIMEOUT_S = 20.0
FORGED = (
    b"PUB forged 2\r\nhi\r\n",
    b"SUB > 1\r\n",
    b"PUB $JS.API.STREAM.LIST _INBOX.1 2\r\n{}\r\n",
    b"PUB $KV.bucket.key 2\r\nhi\r\n",
)


def stranger(url: str, account: str = "") -> str:
    return f"nats://{account}{urlsplit(url).netloc.rpartition('@')[2]}"


@pytest.mark.parametrize("command", FORGED)
async def test_without_the_password_nothing_is_published_subscribed_or_asked(
    command: bytes, nats_url: str
) -> None:
    place = urlsplit(nats_url)
    heard = []
    async with connected(nats_url) as own:

        async def hear(message: Msg) -> None:
            if not message.subject.startswith("$SYS."):  # the server tells of the refusal
                heard.append(message)

        await own.subscribe(">", cb=hear)
        await own.flush()
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        with closing(writer):
            await reader.readline()  # INFO
            writer.write(b'CONNECT {"verbose":false}\r\n' + command + b"PING\r\n")
            async with asyncio.timeout(TIMEOUT_S):
                said = await reader.read()  # until the server hangs up
        assert b"Authorization Violation" in said
        assert b"PONG" not in said
        await own.flush()
    assert heard == []


async def test_a_client_without_the_right_password_is_refused(nats_url: str) -> None:
    async def refusals_of(account: str) -> list[str]:
        refusals: list[str] = []

        async def note(error: Exception) -> None:
            refusals.append(str(error))

        client, url = nats.NATS(), stranger(nats_url, account)
        with pytest.raises((NatsError, OSError)):
            await client.connect(url, allow_reconnect=False, error_cb=note, connect_timeout=5)
        await client.close()
        return refusals

    key = f"hk_{'0' * 12}_{'0' * 64}@"  # nobody is there who knows keys
    accounts = ("", "hocket@", "hocket:wrong@", "admin:hocket@", "other:hocket@", key)
    for refusals in await asyncio.gather(*map(refusals_of, accounts)):
        assert any("Authorization Violation" in refusal for refusal in refusals)


async def test_our_own_connection_says_that_the_password_is_wrong(
    nats_url: str,
) -> None:
    url = stranger(nats_url, "hocket:guessed@")
    with pytest.raises(BusUnavailable, match=r"(?i)authorization violation") as refused:
        await Bus.connect(url, name="test", timeout_s=1.0)
    assert "guessed" not in str(refused.value)


async def test_the_password_stands_in_private_files_only(servers: EmbeddedServers) -> None:
    folder = servers.nats.folder
    password = urlsplit(servers.nats_url).password or ""
    assert len(password) == 48
    assert folder.stat().st_mode & 0o077 == 0
    holders = [
        file
        for file in folder.iterdir()
        if file.is_file() and password in file.read_text("utf-8", "replace")
    ]
    assert {file.name for file in holders} == {"nats.conf", "password", "url"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in holders)
    assert servers.nats.url_file.read_text().strip() == servers.nats_url
    for server in (servers.nats, servers.postgres):
        command = await asyncio.to_thread(Path(f"/proc/{server.pid}/cmdline").read_bytes)
        assert urlsplit(server.url).password.encode() not in command


async def test_a_configuration_that_others_could_read_is_closed_at_the_next_start(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    async with EmbeddedServers(folder, postgres=False) as servers:
        url = servers.nats_url
    config = folder / "nats" / "nats.conf"
    config.chmod(0o644)
    async with EmbeddedServers(folder, postgres=False) as servers:
        assert servers.nats_url == url  # the password is made once
    assert config.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads /proc")
async def test_the_servers_listen_on_loopback_only_and_on_no_unix_socket(
    servers: EmbeddedServers,
) -> None:
    for server in (servers.nats, servers.postgres):
        assert listening(server.pid) == {("127.0.0.1", server.port)}
    async with postgres(servers.database_url) as connection:
        assert await connection.fetchval("SHOW unix_socket_directories") == ""
        rules = await connection.fetch("SELECT type, auth_method FROM pg_hba_file_rules")
    assert {rule["auth_method"] for rule in rules} == {"scram-sha-256"}


def listening(pid: int) -> set[tuple[str, int]]:
    """Return what the process listens on, IPv6 as `::`."""
    own = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text("ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                address, port = fields[1].split(":")
                raw = bytes.fromhex(address)[::-1]
                host = socket.inet_ntoa(raw) if table == "tcp" else "::"
                found.add((host, int(port, 16)))
    return found


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[nats.NATS]:
    connection = await nats.connect(url, connect_timeout=int(TIMEOUT_S))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def postgres(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url, timeout=TIMEOUT_S, command_timeout=TIMEOUT_S)
    try:
        yield connection
    finally:
        await connection.close()
