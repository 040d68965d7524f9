"""A tenant has a bounded number of pipelines, and a pipeline of versions."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from hocket.admin.pipelines import versions
from hocket.admin.pipelines.versions import TooManyPipelines, apply
from hocket.kit.access.audit_log import Actor
from hocket.kit.postgres.database import connect_pool
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

ME = Actor("key:000000000000", "127.0.0.1")


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="pipelines")
    yield pool
    await pool.close()


def plan(name: str, given: Any = 0) -> Plan:
    step = {"type": "python", "handler": "hocket.workers.builtin:echo", "with": {"given": given}}
    return compile_pipeline({"pipeline": name, "nodes": {"a": step}})


async def test_one_pipeline_too_many_is_refused_and_another_tenants_is_not(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "MAX_PIPELINES", 2)
    for name in ("one", "two"):
        assert await apply(pool, "acme", plan(name), ME) == (1, True)
    with pytest.raises(TooManyPipelines, match="There are already 2 pipelines"):
        await apply(pool, "acme", plan("three"), ME)
    assert await apply(pool, "acme", plan("two", given=1), ME) == (2, True)
    assert await apply(pool, "other", plan("three"), ME) == (1, True)


async def test_one_version_too_many_is_refused_and_the_last_one_stays(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "MAX_VERSIONS", 2)
    for number in (1, 2):
        assert await apply(pool, "acme", plan("one", given=number), ME) == (number, True)
    with pytest.raises(TooManyPipelines, match="There are already 2 versions of `one`"):
        await apply(pool, "acme", plan("one", given=3), ME)
    assert await apply(pool, "acme", plan("one", given=2), ME) == (2, False)
