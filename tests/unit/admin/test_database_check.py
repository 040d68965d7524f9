"""Probes of the API share one question to the database, and none waits for long."""

import asyncio
from typing import Any, cast

import pytest

from hocket.admin.health import database_check, reads
from hocket.admin.health.database_check import DatabaseCheck
from hocket.admin.queries import Pool

ROW = {"partitions": 4, "owned": 4}
PROBES = 200
BOUND_S = 10


class SlowPool:
    """A pool that counts its questions, and whose connections are all taken while `is_full`."""

    def __init__(self) -> None:
        self.questions = 0
        self.is_full = False

    async def fetchrow(self, _query: str, *_: Any, timeout: float | None = None) -> Any:
        self.questions += 1
        await asyncio.sleep(BOUND_S * 2 if self.is_full else 0.02)
        return ROW


async def test_probes_at_one_time_ask_the_database_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PROBE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(database_check, "KEPT_S", 0.2)
    pool = SlowPool()
    check = DatabaseCheck(cast("Pool", pool))
    async with asyncio.timeout(BOUND_S):
        leaving = asyncio.create_task(check.answers())
        await asyncio.sleep(0)
        probes = [asyncio.create_task(check.answers()) for _ in range(PROBES)]
        leaving.cancel()
        assert set(await asyncio.gather(*probes)) == {True}
        assert await check.answers()
        assert pool.questions == 1

        pool.is_full = True
        await asyncio.sleep(0.25)
        assert {await check.answers(), await check.answers()} == {False}
        assert pool.questions == 2, "that it does not answer is kept as well"

        pool.is_full = False
        await asyncio.sleep(0.25)
        assert await check.answers()
        assert pool.questions == 3
