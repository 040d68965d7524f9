"""The embedded servers keep their promises: data, ports, supervision, one parent, no orphans."""

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import nats
import pytest
from nats.js import JetStreamContext

from hocket.kit.embedded import EmbeddedServers, default_data_dir, server_process
from hocket.kit.embedded.errors import (
    DataFolderInUse,
    DataFolderUnusable,
    ServerNotReady,
    ServerStopped,
)

TIMEOUT_S = 20.0
PARENT_PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from hocket.kit.embedded import EmbeddedServers

async def main():
    async with EmbeddedServers(Path(sys.argv[1])) as servers:
        print(json.dumps([servers.nats.pid, servers.postgres.pid]), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="hocket-"))
    yield made / "data"
    shutil.rmtree(made)


@pytest.fixture
async def own_nats(folder: Path) -> AsyncIterator[EmbeddedServers]:
    async with EmbeddedServers(folder, postgres=False) as servers:
        yield servers


@asynccontextmanager
async def postgres_of(folder: Path) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a Postgres that runs meanwhile."""
    async with EmbeddedServers(folder, nats=False) as servers:
        connection = await asyncpg.connect(servers.database_url)
        yield connection
        await connection.close()


async def test_postgres_18_answers_at_the_database_url_in_the_database_hocket(
    servers: EmbeddedServers,
) -> None:
    async with database(servers.database_url) as connection:
        assert await connection.fetchval("SELECT current_database()") == "hocket"
        assert await connection.fetchval("SHOW server_version_num") >= "180000"


async def test_a_commit_waits_for_the_disk(servers: EmbeddedServers) -> None:
    async with database(servers.database_url) as connection:
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"


async def test_the_vector_extension_can_be_made(database_url: str) -> None:
    async with database(database_url) as connection:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        assert await connection.fetchval("SELECT '[0,3]'::vector <-> '[4,0]'::vector") == 5


async def test_a_wrong_password_is_refused(servers: EmbeddedServers) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(servers.database_url, password="wrong", timeout=TIMEOUT_S)


async def test_the_password_file_is_private(servers: EmbeddedServers) -> None:
    assert (servers.postgres.folder / "password").stat().st_mode & 0o077 == 0


async def test_what_one_test_writes_another_does_not_see(
    servers: EmbeddedServers, database_url: str
) -> None:
    assert database_url != servers.database_url
    async with database(database_url) as connection:
        await connection.execute("CREATE TABLE only_here (n int)")
    async with database(servers.database_url) as connection:
        assert await connection.fetchval("SELECT to_regclass('only_here')") is None


async def test_jetstream_syncs_every_write(servers: EmbeddedServers, nats_url: str) -> None:
    async with jetstream(nats_url) as js:
        await js.add_stream(name="S", subjects=["s"])
        assert (await js.publish("s", b"1", timeout=TIMEOUT_S)).seq == 1
    assert "sync_interval: always" in (servers.nats.folder / "nats.conf").read_text()
    assert any(servers.nats.store_dir.rglob("*.blk"))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads /proc")
@pytest.mark.parametrize("given", [None, "300MiB"])
async def test_nats_is_lazy_in_collecting_garbage_only_up_to_a_limit(
    given: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv("GOMEMLIMIT", given)
    async with EmbeddedServers(folder, postgres=False) as servers:
        path = Path(f"/proc/{servers.nats.pid}/environ")
        environment = (await asyncio.to_thread(path.read_bytes)).split(b"\0")
    assert f"GOMEMLIMIT={given or '1GiB'}".encode() in environment


async def test_data_and_urls_survive_a_restart_of_the_whole(folder: Path) -> None:
    async with EmbeddedServers(folder) as servers:
        urls = servers.nats_url, servers.database_url
        await write_one(servers)
    async with EmbeddedServers(folder) as servers:
        assert (servers.nats_url, servers.database_url) == urls
        assert await read_back(servers) == (b"kept", "kept")


async def test_killed_servers_come_back_at_the_same_urls_with_their_data(folder: Path) -> None:
    async with EmbeddedServers(folder) as servers:
        urls, pids = (servers.nats_url, servers.database_url), both_pids(servers)
        await write_one(servers)
        await asyncio.gather(servers.nats.kill(), servers.postgres.kill())
        await asyncio.gather(
            servers.nats.wait_ready(timeout_s=TIMEOUT_S),
            servers.postgres.wait_ready(timeout_s=TIMEOUT_S),
        )
        assert (servers.nats_url, servers.database_url) == urls
        assert set(both_pids(servers)).isdisjoint(pids)
        assert await read_back(servers) == (b"kept", "kept")


async def test_a_server_killed_from_outside_again_and_again_always_comes_back(
    own_nats: EmbeddedServers,
) -> None:
    seen = set()
    for _ in range(4):
        pid = own_nats.nats.pid
        seen.add(pid)
        watched = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert await ended(watched)
        await own_nats.nats.wait_ready(timeout_s=TIMEOUT_S)
    assert len(seen) == 4


async def test_a_busy_session_does_not_hold_up_the_restart_of_a_killed_postgres(
    folder: Path,
) -> None:
    async with EmbeddedServers(folder, nats=False) as servers:
        connection = await asyncpg.connect(servers.database_url, timeout=TIMEOUT_S)
        endless = "DO $$ BEGIN RAISE WARNING 'busy'; LOOP NULL; END LOOP; END $$"
        busy = asyncio.Event()
        connection.add_log_listener(lambda *_: busy.set())
        query = asyncio.create_task(connection.execute(endless, timeout=TIMEOUT_S))
        async with asyncio.timeout(TIMEOUT_S):
            await busy.wait()
        await servers.postgres.kill()
        await servers.postgres.wait_ready(timeout_s=TIMEOUT_S)
        with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
            await query
        connection.terminate()


async def test_a_stopped_server_stays_away_until_it_is_started(own_nats: EmbeddedServers) -> None:
    url = own_nats.nats_url
    await own_nats.nats.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", own_nats.nats.port), timeout=TIMEOUT_S)
    with pytest.raises(ServerStopped):
        await own_nats.nats.wait_ready(timeout_s=TIMEOUT_S)
    await own_nats.nats.start()
    assert own_nats.nats_url == url
    async with jetstream(url) as js:
        assert (await js.account_info()).streams == 0


async def test_two_instances_run_side_by_side(servers: EmbeddedServers, folder: Path) -> None:
    async with EmbeddedServers(folder) as others:
        assert others.nats.port != servers.nats.port
        assert others.postgres.port != servers.postgres.port


async def test_a_second_parent_is_refused_and_told_the_folder_and_the_holder(
    own_nats: EmbeddedServers, folder: Path
) -> None:
    with pytest.raises(DataFolderInUse) as refused:
        await EmbeddedServers(folder).__aenter__()
    assert str(folder) in str(refused.value)
    assert f"process {os.getpid()}" in str(refused.value)


async def test_a_folder_that_cannot_be_made_is_named() -> None:
    with pytest.raises(DataFolderUnusable, match="/proc/none"):
        await EmbeddedServers(Path("/proc/none")).__aenter__()


async def test_a_wanted_port_is_taken_if_it_is_free(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        wanted = taken.getsockname()[1]
        taken.listen()
        async with EmbeddedServers(folder, postgres=False, nats_port=wanted) as servers:
            other = servers.nats.port
            assert other != wanted
    async with EmbeddedServers(folder, postgres=False, nats_port=wanted) as servers:
        assert servers.nats.port == wanted
        await servers.nats.stop()
        await servers.nats.start()
        assert servers.nats.port == wanted
    async with EmbeddedServers(folder, postgres=False) as servers:
        assert servers.nats.port == other


async def test_a_taken_port_is_replaced_at_the_next_start(folder: Path) -> None:
    async with EmbeddedServers(folder, postgres=False) as servers:
        port = servers.nats.port
    with socket.create_server(("127.0.0.1", port)):
        async with EmbeddedServers(folder, postgres=False) as servers:
            assert servers.nats.port != port


async def test_a_long_data_folder_path_is_no_obstacle(folder: Path) -> None:
    async with EmbeddedServers(folder / ("long" * 40) / "with space 'n quote é") as servers:
        await write_one(servers)
        assert await read_back(servers) == (b"kept", "kept")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root meets folders closed to Postgres' account")
async def test_root_can_use_a_folder_that_is_closed_to_others(folder: Path) -> None:
    folder.parent.chmod(0o700)
    async with (
        EmbeddedServers(folder, nats=False) as servers,
        database(servers.database_url) as connection,
    ):
        assert await connection.fetchval("SELECT 1") == 1
    assert folder.parent.stat().st_mode & 0o007 == 0


async def test_stopping_leaves_no_process(folder: Path) -> None:
    async with EmbeddedServers(folder) as servers:
        pids = both_pids(servers)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_servers_end_when_their_parent_is_killed(folder: Path) -> None:
    parent, pids = await parent_process(folder)
    watched = [os.pidfd_open(pid) for pid in pids]
    parent.kill()
    await parent.wait()
    for process in watched:
        assert await ended(process)


async def test_data_is_there_after_the_parent_was_killed(folder: Path) -> None:
    async with EmbeddedServers(folder) as servers:
        await write_one(servers)
    parent, _ = await parent_process(folder)
    parent.kill()
    await parent.wait()
    async with EmbeddedServers(folder) as servers:
        assert await read_back(servers) == (b"kept", "kept")


async def test_a_leftover_that_hangs_is_ended_at_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_process, "STOP_TIMEOUT_S", 0.2)
    parent, pids = await parent_process(folder)
    watched = [os.pidfd_open(pid) for pid in pids]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    parent.kill()
    await parent.wait()
    async with EmbeddedServers(folder) as servers:
        for process in watched:
            assert await ended(process)
        assert set(both_pids(servers)).isdisjoint(pids)


async def test_a_stale_pid_file_harms_no_other_process(folder: Path) -> None:
    bystander = await asyncio.create_subprocess_exec("sleep", "600")
    (folder / "nats").mkdir(parents=True)
    (folder / "nats" / "pid").write_text(f"{bystander.pid} 1 another-boot\n")
    async with EmbeddedServers(folder, postgres=False):
        assert bystander.returncode is None
    bystander.kill()
    assert await bystander.wait() == -signal.SIGKILL


async def test_an_interrupted_first_start_is_begun_anew(folder: Path) -> None:
    half_made = folder / "postgres" / "cluster.new"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18")
    async with EmbeddedServers(folder, nats=False) as servers:
        assert not half_made.exists()
        assert servers.postgres.data_dir.exists()


@pytest.mark.parametrize("left", ["", "\0" * 40], ids=["empty", "zeros"])
async def test_a_pid_file_of_postgres_that_lost_its_content_does_not_prevent_the_start(
    folder: Path, left: str
) -> None:
    """Postgres does not sync the file before it goes on: a power loss can leave it empty."""
    async with EmbeddedServers(folder, nats=False) as servers:
        pid_file = servers.postgres.data_dir / "postmaster.pid"
    pid_file.write_text(left)

    async with EmbeddedServers(folder, nats=False) as servers:
        await servers.postgres.wait_ready(timeout_s=TIMEOUT_S)


async def test_a_pid_file_of_postgres_may_name_what_has_that_number_now(folder: Path) -> None:
    """After a power loss, or in the next container."""
    async with EmbeddedServers(folder, nats=False) as servers:
        pid_file = servers.postgres.data_dir / "postmaster.pid"
        account = servers.postgres.account
    uid = None if account is None else account.uid
    bystander = await asyncio.create_subprocess_exec("sleep", "600", user=uid)
    pid_file.write_text(f"{bystander.pid}\n{pid_file.parent}\n")
    async with EmbeddedServers(folder, nats=False) as servers:
        await servers.postgres.wait_ready(timeout_s=TIMEOUT_S)
        assert bystander.returncode is None
    bystander.kill()
    await bystander.wait()


async def test_a_password_that_was_lost_is_replaced(folder: Path) -> None:
    async with postgres_of(folder) as connection:
        await connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
    (folder / "postgres" / "password").unlink()
    for _ in range(2):
        async with postgres_of(folder) as connection:
            assert await connection.fetchval("SELECT n FROM kept") == 1


async def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    async with EmbeddedServers(folder, nats=False) as servers:
        version_file = servers.postgres.data_dir / "PG_VERSION"
    version_file.write_text("9.6\n")
    with pytest.raises(ServerNotReady, match="database files are incompatible"):
        await EmbeddedServers(folder, nats=False).__aenter__()


async def test_after_a_failed_start_the_folder_is_free_again(folder: Path) -> None:
    async with EmbeddedServers(folder, nats=False) as servers:
        version_file = servers.postgres.data_dir / "PG_VERSION"
    version_file.write_text("9.6\n")
    with pytest.raises(ServerNotReady):
        await EmbeddedServers(folder).__aenter__()
    version_file.write_text("18\n")
    async with EmbeddedServers(folder) as servers:
        await servers.postgres.wait_ready(timeout_s=TIMEOUT_S)


async def test_a_server_that_was_left_out_is_not_there(own_nats: EmbeddedServers) -> None:
    with pytest.raises(ServerStopped):
        _ = own_nats.database_url


def test_the_default_folder_follows_the_xdg_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    assert default_data_dir() == Path("/elsewhere/hocket")
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/invalid")
    assert default_data_dir() == Path("/home/somebody/.local/share/hocket")


async def write_one(servers: EmbeddedServers) -> None:
    async with jetstream(servers.nats_url) as js:
        await js.add_stream(name="KEEP", subjects=["keep"])
        await js.publish("keep", b"kept", timeout=TIMEOUT_S)
    async with database(servers.database_url) as connection:
        await connection.execute("CREATE TABLE keep AS SELECT 'kept' AS word")


async def read_back(servers: EmbeddedServers) -> tuple[bytes | None, str]:
    async with jetstream(servers.nats_url) as js:
        message = await js.get_msg("KEEP", 1)
    async with database(servers.database_url) as connection:
        return message.data, await connection.fetchval("SELECT word FROM keep")


def both_pids(servers: EmbeddedServers) -> tuple[int, int]:
    return servers.nats.pid, servers.postgres.pid


async def parent_process(folder: Path) -> tuple[asyncio.subprocess.Process, list[int]]:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT_PROGRAM, str(folder), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        while line := await parent.stdout.readline():
            if line.startswith(b"["):
                pids: list[int] = json.loads(line)
                return parent, pids
    raise AssertionError("the parent process ended before its servers were ready")


async def ended(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    events = await asyncio.to_thread(poller.poll, TIMEOUT_S * 1000)
    os.close(pidfd)
    return bool(events)


@asynccontextmanager
async def jetstream(url: str) -> AsyncIterator[JetStreamContext]:
    connection = await nats.connect(url, connect_timeout=int(TIMEOUT_S))
    try:
        yield connection.jetstream(timeout=TIMEOUT_S)
    finally:
        await connection.close()


@asynccontextmanager
async def database(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url, timeout=TIMEOUT_S, command_timeout=TIMEOUT_S)
    try:
        yield connection
    finally:
        await connection.close()


async def test_streams_of_a_release_without_accounts_are_there_after_the_upgrade(
    folder: Path,
) -> None:
    async with EmbeddedServers(folder, postgres=False) as servers:
        client = await nats.connect(servers.nats_url)
        await client.jetstream().add_stream(name="KEPT", subjects=["kept"])
        await client.jetstream().publish("kept", b"accepted")
        await client.close()
    kept = folder / "nats" / "store" / "jetstream"
    (kept / "HOCKET").rename(kept / "$G")  # where servers without accounts have them
    for _ in range(2):
        async with EmbeddedServers(folder, postgres=False) as servers:
            client = await nats.connect(servers.nats_url)
            assert (await client.jetstream().get_msg("KEPT", 1)).data == b"accepted"
            await client.close()
