"""Postgres behind a real pgbouncer: sessions of our own go on after Postgres was away, and ones that
others get between transactions are refused."""

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import urlsplit

import asyncpg
import pytest

from hocket.kit.embedded import EmbeddedServers
from hocket.kit.embedded.postgres import PostgresServer
from hocket.kit.postgres import requirements
from hocket.kit.postgres.database import SESSION, connect_pool, connected
from hocket.kit.postgres.database_url import of_primary
from hocket.kit.postgres.errors import STATEMENT_ERRORS, Meaning, is_of_pooler, meaning_of
from hocket.kit.postgres.pooler import Pooling, SessionsShared, pooling_of
from support.servers.pgbouncer import MISSING, PROGRAM, Bouncer

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

BOUND_S = 60.0
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = Path(mkdtemp(prefix="hocket-"))
    yield made
    shutil.rmtree(made)


@asynccontextmanager
async def before(
    servers: EmbeddedServers, folder: Path, url: str, **settings: str
) -> AsyncIterator[Bouncer]:
    place, account = folder / str(next(_numbers)), servers.postgres.account
    bouncer = Bouncer(place, url, account=account, **settings)
    try:
        await bouncer.start()
        yield bouncer
    finally:
        bouncer.stop()


async def test_a_session_of_our_own_is_told_from_one_that_others_get(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    assert await pooling_of(lambda: asyncpg.connect(database_url)) is Pooling.NONE
    for mode, expected in (("session", Pooling.SESSION), ("transaction", Pooling.SHARED)):
        async with before(servers, folder, database_url, pool_mode=mode) as bouncer:
            assert await pooling_of(bouncer.connect) is expected


async def test_processes_and_migrations_refuse_a_session_that_others_get(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    async with before(servers, folder, database_url, pool_mode="transaction") as bouncer:
        with pytest.raises(SessionsShared, match="pool_mode = session"):
            await connect_pool(bouncer.url, size=2, name="test")
        with pytest.raises(SessionsShared):
            await requirements.check(bouncer.url)
    async with before(servers, folder, database_url) as bouncer:
        await requirements.check(bouncer.url)


async def test_a_pool_behind_it_keeps_prepared_statements_and_locks(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    async with before(servers, folder, database_url) as bouncer:
        pool = await connect_pool(bouncer.url, size=2, name="test")
        async with pool.acquire() as one, pool.acquire() as other:
            assert await one.fetchval("SELECT pg_try_advisory_lock(7)")
            for number in range(5):  # the same statement, from the session's cache
                assert await one.fetchval("SELECT $1::int", number) == number
            assert not await other.fetchval("SELECT pg_try_advisory_lock(7)")
        await pool.close()
        direct = await asyncpg.connect(database_url)
        async with asyncio.timeout(BOUND_S):  # its end gives the lock back
            while not await direct.fetchval("SELECT pg_try_advisory_lock(7)"):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await direct.close()


async def test_it_gives_each_session_the_settings_that_it_asks_for(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    owner = await asyncpg.connect(database_url)
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} SET timezone = 'Europe/Berlin'")
    await owner.execute(f"ALTER DATABASE {name} SET datestyle = 'SQL, DMY'")
    await owner.close()
    async with before(servers, folder, database_url, default_pool_size="1") as bouncer:
        other = await bouncer.connect()
        assert await other.fetchval("SHOW timezone") == "Europe/Berlin"
        await other.close()
        for _ in range(2):  # each gets the session of the one before
            ours = await connected(bouncer.url)
            assert {name: await ours.fetchval(f"SHOW {name}") for name in SESSION} == SESSION
            await ours.close()


async def test_what_it_says_while_postgres_is_away_is_no_fault_of_a_row() -> None:
    made = Path(mkdtemp(prefix="hocket-"))
    postgres = PostgresServer(made / "postgres")
    await postgres.start()
    bouncer = Bouncer(made / "pgbouncer", postgres.url, account=postgres.account)
    try:
        await bouncer.start()
        pool = await connect_pool(bouncer.url, size=2, name="test")
        said: list[BaseException] = []
        await postgres.stop()
        for _ in range(5):
            assert await _ask(pool, said) is None
        await postgres.start()
        async with asyncio.timeout(BOUND_S):  # it is found again by itself
            while await _ask(pool, said) != 1:
                pass
        assert {meaning_of(error) for error in said} == {Meaning.AWAY}
        pool.terminate()
    finally:
        bouncer.stop()
        await postgres.stop()
        shutil.rmtree(made)


async def _ask(pool: asyncpg.Pool, said: list[BaseException]) -> int | None:
    """Ask, and return the answer; without one note what was said instead."""
    try:
        answer: int = await pool.fetchval("SELECT 1", timeout=20)
    except STATEMENT_ERRORS as error:
        said.append(error)
        return None
    return answer


async def test_of_two_that_lead_to_the_primary_one_is_enough(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    async with (
        before(servers, folder, database_url) as one,
        before(servers, folder, database_url) as other,
    ):
        place = urlsplit(other.url).netloc.rpartition("@")[2]
        url = f"{one.url.removesuffix('/hocket')},{place}/hocket?target_session_attrs=any"
        assert of_primary(url) == url
        pool = await connect_pool(url, size=2, name="test")
        one.stop()
        said: list[BaseException] = []
        async with asyncio.timeout(BOUND_S):
            while await _ask(pool, said) != 1:
                pass
        await pool.close()


async def test_that_it_takes_no_more_connections_is_no_fault_of_a_row_either(
    servers: EmbeddedServers, folder: Path, database_url: str
) -> None:
    async with before(servers, folder, database_url, max_client_conn="1") as bouncer:
        only = await bouncer.connect()
        with pytest.raises(asyncpg.ProtocolViolationError) as refused:
            await bouncer.connect()
        await only.close()
    assert is_of_pooler(refused.value)
    assert meaning_of(refused.value) is Meaning.AWAY
