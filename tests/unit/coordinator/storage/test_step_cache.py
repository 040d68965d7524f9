"""The step cache's shell: what it does when Postgres is away, when a batch breaks, when it is full."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.coordinator.storage import step_cache as module
from hocket.coordinator.storage.cache_store import Answer
from hocket.coordinator.storage.step_cache import StepCache
from hocket.schemas.errors import PayloadTooLarge

BOUND_S = 60.0


class Parts:
    """Stands for store, bus and metrics: answers as told, and writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.posted: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.was_asked = asyncio.Event()
        self.faults: list[Exception] = []
        self.output: str | None = "1"
        self.limit_bytes = 10_000
        self.metrics: Any = SimpleNamespace(cache=lambda answer, steps: None)

    async def look_up(self, asks: list[LookUpCache]) -> list[Answer]:
        self._take("look_up", [ask.run_id for ask in asks])
        return [Answer(ask.key, ask.run_id, ask.step, self.output) for ask in asks]

    async def fill(self, fillings: list[Any]) -> list[Answer]:
        self._take("fill", [filling.run_id for filling in fillings])
        return []

    async def release(self, releases: list[ReleaseCache]) -> list[Answer]:
        self._take("release", [release.run_id for release in releases])
        return []

    async def sweep(self, limit: int) -> int:
        return 0

    async def wait_for_capacity(self) -> None:
        return

    def publish_durable(
        self, subject: str, payload: bytes, *, msg_id: None, headers: None
    ) -> "asyncio.Future[Any]":
        if len(payload) > self.limit_bytes:
            raise PayloadTooLarge(size_bytes=len(payload), limit_bytes=self.limit_bytes)
        self.posted.put_nowait({"subject": subject, **json.loads(payload)})
        return asyncio.get_running_loop().create_future()

    def _take(self, what: str, run_ids: list[str]) -> None:
        self.asked.append((what, run_ids))
        self.was_asked.set()
        if self.faults:
            raise self.faults.pop(0)


def ask(run_id: str) -> LookUpCache:
    return LookUpCache("k", "t", run_id, "a", ttl_ms=9, claim_until_ms=9)


def fill(run_id: str, key: str = "k", output: Any = (1,)) -> FillCache:
    return FillCache(key, "t", run_id, "a", ttl_ms=9, output=output, cost_usd=Decimal(0))


@asynccontextmanager
async def running(parts: Parts, before: Callable[[StepCache], None]) -> AsyncIterator[StepCache]:
    cache = StepCache(parts, parts, parts.metrics, partitions=4)  # type: ignore[arg-type]
    before(cache)
    task = asyncio.create_task(cache.run())
    try:
        async with asyncio.timeout(BOUND_S):
            yield cache
    finally:
        task.cancel()


async def test_a_question_waits_while_postgres_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    parts = Parts()
    parts.faults = [ConnectionRefusedError("no database"), TimeoutError()]
    async with running(parts, lambda cache: cache.look_up(ask("r1"))):
        answer = await parts.posted.get()
    assert (answer["run_id"], answer["hit"], answer["output"]) == ("r1", True, 1)
    assert parts.asked == [("look_up", ["r1"])] * 3


async def test_a_batch_that_breaks_is_given_up_and_the_next_is_served() -> None:
    parts = Parts()
    parts.faults = [ValueError("a bug")]
    async with running(parts, lambda cache: cache.look_up(ask("r1"))) as cache:
        await parts.was_asked.wait()
        cache.look_up(ask("r2"))
        answer = await parts.posted.get()
    assert answer["run_id"] == "r2"


async def test_an_output_that_fits_no_message_is_computed_by_who_asked() -> None:
    parts = Parts()
    parts.output = json.dumps("x" * 20_000)
    async with running(parts, lambda cache: cache.look_up(ask("r1"))):
        answer = await parts.posted.get()
    assert (answer["hit"], answer["output"]) == (False, None)


async def test_outputs_go_before_releases_and_questions_last() -> None:
    def all_at_once(cache: StepCache) -> None:
        cache.look_up(ask("r3"))
        cache.release(ReleaseCache("k", "r2", "a"))
        cache.fill(fill("r1"))

    parts = Parts()
    async with running(parts, all_at_once):
        await parts.posted.get()
    assert parts.asked == [("fill", ["r1"]), ("release", ["r2"]), ("look_up", ["r3"])]


async def test_who_leaves_or_has_computed_asks_no_more() -> None:
    def changed_their_minds(cache: StepCache) -> None:
        for run_id in ("r1", "r2", "r3"):
            cache.look_up(ask(run_id))
        cache.release(ReleaseCache("k", "r1", "a"))
        cache.fill(fill("r2"))

    parts = Parts()
    async with running(parts, changed_their_minds):
        await parts.posted.get()
    assert parts.asked[-1] == ("look_up", ["r3"])


async def test_of_too_many_outputs_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(cache: StepCache) -> None:
        for n in range(5):
            cache.fill(fill(f"r{n}", key=f"k{n}"))
        cache.look_up(ask("r9"))

    monkeypatch.setattr(module, "MAX_PENDING", 3)
    parts = Parts()
    async with running(parts, many):
        await parts.posted.get()
    assert parts.asked[0] == ("fill", ["r2", "r3", "r4"])


async def test_many_questions_are_asked_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(cache: StepCache) -> None:
        for n in range(5):
            cache.look_up(ask(f"r{n}"))

    monkeypatch.setattr(module, "MAX_QUESTIONS", 2)
    parts = Parts()
    async with running(parts, many):
        for _ in range(5):
            await parts.posted.get()
    assert [len(run_ids) for _, run_ids in parts.asked] == [2, 2, 1]


async def test_of_outputs_that_are_too_long_together_the_oldest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_PENDING_CHARS", 100, raising=False)
    monkeypatch.setattr(module, "MAX_BATCH_CHARS", 60, raising=False)

    def all_at_once(cache: StepCache) -> None:
        cache.fill(fill("r0", "k0", "x" * 60))
        cache.fill(fill("r1", "k1", "x" * 38))
        cache.fill(fill("r2", "k1", "x" * 28))  # in the place of the one before
        cache.fill(fill("r3", "k3", "x" * 28))
        cache.fill(fill("r4", "k4", "x" * 28))
        cache.fill(fill("r5", "k5", object()))
        cache.look_up(ask("asks"))

    parts = Parts()
    async with running(parts, all_at_once) as cache:
        await parts.posted.get()
        while ("fill", ["r4"]) not in parts.asked:
            parts.was_asked.clear()
            await parts.was_asked.wait()
        assert cache._fills_chars == 0
    filled = [run_ids for what, run_ids in parts.asked if what == "fill"]
    assert filled == [["r2", "r3"], ["r4"]]
