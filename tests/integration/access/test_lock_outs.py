"""What one tenant, or somebody without a key, does at REST keeps nobody else out."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import pytest

from hocket.admin.console.assets import asset_path
from hocket.admin.requests import strangers
from hocket.kit.access import key_store
from hocket.kit.access.audit_log import Actor
from hocket.kit.process.setting_types import OWN_PATHS
from hocket.schemas.access.keys import parts_of
from support.administration.console_rig import PAGE, PIPELINE, RUN, add_run, asked_bare
from support.rest_rig import Rest, bearer, running_rest

BOUND_S = 60.0
PROMPTLY_S = 5.0
CLIENTS = 12
"""More than the process has connections to the database."""
SIGN_IN = (
    b"POST /console/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)


@pytest.fixture
async def rest(nats_url: str, database_url: str) -> AsyncIterator[Rest]:
    async with running_rest(nats_url, database_url) as rest:
        yield rest


@asynccontextmanager
async def locked(database_url: str, tables: str) -> AsyncIterator[None]:
    """Let every query of these tables wait while the block lasts."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction():
            await connection.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("method", "path", "tables"),
    [
        ("GET", "/console/models", "hocket.usage"),
        ("GET", "/console/pipelines", "hocket.usage, hocket.run"),
        ("GET", "/console/pipelines/greet", "hocket.usage"),
        ("GET", f"/console/runs/{RUN}?view=calls", "hocket.price"),
        ("POST", "/v1/data/delete", "hocket.usage, hocket.run"),
    ],
)
async def test_slow_reports_of_one_tenant_leave_connections_to_others(
    rest: Rest, database_url: str, method: str, path: str, tables: str
) -> None:
    own = {"X-Hocket-Tenant": "acme"}
    assert (await rest.post("/v1/pipelines", PIPELINE, headers=own)).status == 201
    await add_run(rest, tenant="acme")
    key, other = await rest.make_key("admin", "acme"), await rest.make_key("viewer", "rival")
    body = {"tenant": "acme", "dry_run": True} if method == "POST" else None
    async with aiohttp.ClientSession(headers={**bearer(key), **PAGE}) as session:

        async def ask() -> int:
            async with session.request(method, rest.url + path, json=body) as reply:
                return reply.status

        async with locked(database_url, tables):
            asking = [asyncio.create_task(ask()) for _ in range(CLIENTS)]
            await asyncio.sleep(1)
            begun = time.monotonic()
            headers = {"Authorization": f"Bearer {other}"}
            answer = await rest.get("/v1/pipelines", headers=headers)
            took_s = time.monotonic() - begun
            assert not any(one.done() for one in asking)
        assert answer.status == 200
        assert took_s < PROMPTLY_S
        async with asyncio.timeout(BOUND_S):
            assert set(await asyncio.gather(*asking)) == {200}


async def test_revocations_and_probes_wait_for_no_query_of_a_tenant(
    rest: Rest, database_url: str
) -> None:
    key = await rest.make_key("viewer", "acme")
    parts = parts_of(key)
    assert parts is not None
    assert (await rest.get("/v1/keys/own", headers=bearer(key))).status == 200
    taken = [await rest.pool.acquire() for _ in range(rest.pool.get_max_size())]
    try:
        revoker = await asyncpg.connect(database_url)
        await key_store.revoke(revoker, parts[0], None, Actor("test", "127.0.0.1"))
        await revoker.close()
        async with asyncio.timeout(PROMPTLY_S):
            while (await rest.get("/v1/keys/own", headers=bearer(key))).status == 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.1)  # what was known of the database a moment ago is forgotten
        assert (await rest.get("/readyz")).status == 200
        parts_told = (await rest.get("/v1/health")).body["parts"]
        assert next(one["ok"] for one in parts_told if one["name"] == "database")
    finally:
        for one in taken:
            await rest.pool.release(one)


@asynccontextmanager
async def endless(rest: Rest, count: int, address: str) -> AsyncIterator[None]:
    """Keep so many sign-ins from an address from ending while the block lasts."""
    port, writers = urlsplit(rest.url).port, []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
            writers.append(writer)
            writer.write(SIGN_IN)
            await writer.drain()
        await asyncio.sleep(0.5)
        yield
    finally:
        for writer in writers:
            writer.close()


async def test_who_never_ends_a_sign_in_keeps_no_other_address_out(rest: Rest) -> None:
    key = await rest.make_key("viewer", "acme")
    script = "/console" + asset_path("console.js")
    connector = aiohttp.TCPConnector(local_addr=("127.0.0.9", 0))
    async with aiohttp.ClientSession(connector=connector) as greedy:

        async def signed_in() -> tuple[int, str]:
            async with greedy.post(rest.url + "/console/sign-in", json={"key": key}) as reply:
                return reply.status, (await reply.json()).get("code", "")

        async with endless(rest, strangers.MAX_OF_ADDRESS, "127.0.0.9"):
            assert await signed_in() == (429, "address_api_full")
            async with greedy.get(rest.url + script) as reply:
                assert reply.status == 200
            assert (await rest.get("/console/runs", headers=PAGE)).status == 200
            other = await asked_bare(rest, "POST", "/console/sign-in", json={"key": key})
            assert other.status == 200
        async with asyncio.timeout(BOUND_S):
            while (await signed_in())[0] != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.2)


async def test_a_sign_in_whose_body_does_not_end_is_answered_and_its_connection_closed(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "BODY_S", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(rest.url).port)
    writer.write(SIGN_IN)
    try:
        async with asyncio.timeout(PROMPTLY_S):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"body_too_slow" in body


async def test_a_body_without_a_key_is_small(rest: Rest) -> None:
    large = {"key": "k" * strangers.MAX_BODY_BYTES}
    assert (await asked_bare(rest, "POST", "/console/sign-in", json=large)).status == 413


async def test_no_path_of_the_service_may_be_its_root(rest: Rest) -> None:
    """Such a HOCKET_ROOT_PATH is refused: it would hide all that begins like it."""
    first_parts = {one.template.split("/")[1] for one in rest.app.state.operations}
    assert first_parts == set(OWN_PATHS)
