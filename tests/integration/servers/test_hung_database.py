"""A Postgres that stands still: its clients give statements up in time, and say that it is away."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.postgres import database, migrations, requirements
from hocket.kit.postgres.database import DatabaseUnavailable, connect_pool, monitor_database
from hocket.kit.postgres.errors import Meaning, meaning_of

BOUND_S = 60
SHORT_S = 0.3


@contextmanager
def frozen(servers: EmbeddedServers) -> Iterator[None]:
    pid = servers.postgres.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pids = [pid, *map(int, children)]
    for one in pids:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in pids:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)


@pytest.fixture
async def pool(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncpg.Pool]:
    for name in ("RELEASE_TIMEOUT_S", "PULSE_EVERY_S", "PULSE_TIMEOUT_S"):
        monkeypatch.setattr(database, name, SHORT_S)
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    pool.terminate()


async def test_a_statement_is_given_up_in_time_and_the_next_is_answered_when_postgres_is(
    servers: EmbeddedServers, pool: asyncpg.Pool
) -> None:
    with frozen(servers):
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(TimeoutError):
                await pool.fetchval("SELECT 1", timeout=SHORT_S)
    async with asyncio.timeout(BOUND_S):
        assert await pool.fetchval("SELECT 2") == 2


async def test_health_says_that_postgres_does_not_answer_and_that_it_does_again(
    servers: EmbeddedServers, pool: asyncpg.Pool
) -> None:
    said: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    pulse = asyncio.create_task(
        monitor_database(pool, lambda name, ok, _: said.put_nowait((name, ok)))
    )
    try:
        async with asyncio.timeout(BOUND_S):
            assert await said.get() == ("database", True)
            with frozen(servers):
                while await said.get() != ("database", False):
                    pass
            while await said.get() != ("database", True):
                pass
    finally:
        pulse.cancel()
        await asyncio.wait({pulse})


async def test_health_goes_on_asking_whatever_became_of_a_question(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PULSE_EVERY_S", 0.0)
    ask, failed = database._ask, asyncio.Event()

    async def short(pool: asyncpg.Pool) -> None:
        if not failed.is_set():
            failed.set()
            raise MemoryError
        await ask(pool)

    monkeypatch.setattr(database, "_ask", short)
    said: asyncio.Queue[bool] = asyncio.Queue()
    pulse = asyncio.create_task(monitor_database(pool, lambda _, ok, __: said.put_nowait(ok)))
    async with asyncio.timeout(BOUND_S):
        assert [await said.get(), await said.get()] == [False, True]
    pulse.cancel()
    await asyncio.wait({pulse})


async def test_while_no_host_is_primary_everybody_waits_and_says_that_postgres_is_away(
    database_url: str,
) -> None:
    other = f"{database_url}?target_session_attrs=standby"  # which this one is not
    with pytest.raises(DatabaseUnavailable, match="None of the hosts match"):
        await connect_pool(other, size=1, name="test", timeout_s=SHORT_S)
    with pytest.raises(DatabaseUnavailable, match="None of the hosts match"):
        await requirements.check(other)
    with pytest.raises(migrations.SchemaNotReady, match="None of the hosts match"):
        await migrations.wait_current(other, SHORT_S * 1000)


async def test_what_a_standby_does_not_take_is_no_fault_of_its_values(pool: asyncpg.Pool) -> None:
    async with pool.acquire() as connection:
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError) as refused:
            await connection.execute("BEGIN READ ONLY; CREATE TABLE t2 (x int)")
        await connection.execute("ROLLBACK")
    assert meaning_of(refused.value) is Meaning.AWAY


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("another operation is in progress"),
        asyncpg.AdminShutdownError("terminating connection"),
        asyncpg.InterfaceError("connection is closed"),
    ],
)
async def test_a_pool_that_loses_its_first_connection_at_once_tries_again(
    database_url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Postgres was killed between a process's connection and its first statement, and the process
    ended."""
    checked: list[object] = []

    async def check(connection: object, _connect: object) -> None:
        checked.append(connection)
        if len(checked) == 1:
            raise error

    monkeypatch.setattr(database, "check_sessions", check)
    monkeypatch.setattr(database, "RETRY_WAIT_S", 0.01)
    async with asyncio.timeout(BOUND_S):
        pool = await connect_pool(database_url, size=1, name="test")
        assert await pool.fetchval("SELECT 1") == 1
    pool.terminate()
    assert len(checked) == 2
