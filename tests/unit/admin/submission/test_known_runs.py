"""Runs of idempotency keys are looked up with few queries; each request gets its own run or error."""

import asyncio
from typing import Any, cast

from hocket.admin.queries import Pool
from hocket.admin.submission.known_runs import KnownRuns

BOUND_S = 5.0


class Table:
    """Stands for a pool: it answers a query when it is told to, with the runs that it has."""

    def __init__(self, *runs: tuple[str, str]) -> None:
        self.runs = set(runs)
        self.asked: list[list[tuple[str, str]]] = []
        self.is_asked = asyncio.Event()
        self.answers = asyncio.Semaphore(0)
        self.error: Exception | None = None

    async def fetch(
        self, _query: str, tenants: list[str], run_ids: list[str], **_options: Any
    ) -> list[dict[str, str]]:
        asked = list(zip(tenants, run_ids, strict=True))
        self.asked.append(asked)
        self.is_asked.set()
        await self.answers.acquire()
        if self.error is not None:
            raise self.error
        return [{"tenant": one[0], "run_id": one[1]} for one in asked if one in self.runs]


async def test_what_is_asked_during_a_query_is_asked_by_the_next_one() -> None:
    table, known = Table(("a", "r1"), ("b", "r2")), KnownRuns()
    pool = cast(Pool, table)
    async with asyncio.timeout(BOUND_S):
        first = asyncio.create_task(known.find(pool, "a", "r1"))
        await table.is_asked.wait()
        later = [
            asyncio.create_task(known.find(pool, *one))
            for one in (("a", "r2"), ("b", "r2"), ("a", "r1"), ("b", "r2"))
        ]
        await asyncio.sleep(0)
        table.answers.release()
        table.answers.release()

        assert await first == {"tenant": "a", "run_id": "r1"}
        found = await asyncio.gather(*later)

    b_r2 = {"tenant": "b", "run_id": "r2"}
    assert found == [None, b_r2, {"tenant": "a", "run_id": "r1"}, b_r2]
    assert table.asked == [[("a", "r1")], [("a", "r2"), ("b", "r2"), ("a", "r1")]]


async def test_who_goes_away_takes_no_answer_from_others() -> None:
    table, known = Table(("a", "r1")), KnownRuns()
    pool = cast(Pool, table)
    async with asyncio.timeout(BOUND_S):
        gone, stays = (asyncio.create_task(known.find(pool, "a", "r1")) for _ in range(2))
        await table.is_asked.wait()
        gone.cancel()
        table.answers.release()

        assert await stays is not None


async def test_an_error_is_everybodys_and_the_next_query_is_another() -> None:
    table, known = Table(("a", "r1")), KnownRuns()
    pool = cast(Pool, table)
    table.error = ConnectionError("away")
    table.answers.release()
    async with asyncio.timeout(BOUND_S):
        asked = [known.find(pool, "a", "r1"), known.find(pool, "a", "r2")]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(error) for error in found] == ["away", "away"]

        table.error = None
        table.answers.release()
        assert await known.find(pool, "a", "r1") is not None
