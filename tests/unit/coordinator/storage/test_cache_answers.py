"""How the answers of the step cache are posted: as which messages, how many at once, in what order."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_core import to_json

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.coordinator.partition import turns
from hocket.coordinator.storage import step_cache as cache_module
from hocket.coordinator.storage.cache_store import Answer, Filling
from hocket.coordinator.storage.step_cache import StepCache
from hocket.schemas.messages import CacheAnswered

BOUND_S = 60.0
MIB = 1024 * 1024
LARGE = json.dumps("x" * MIB)
WAITERS = 40


class Parts:
    """Stands for store, bus and metrics: keeps the posts until a test acknowledges them."""

    def __init__(self) -> None:
        self.posted: list[bytes] = []
        self.open: dict[str, list[asyncio.Future[None]]] = {}
        """The posts that are not acknowledged, by the runs' tenants: the first letters of their ids."""
        self.some = asyncio.Event()
        self.acknowledges = False
        self.takes_ms = 0.0
        self.now_ms = 0.0
        self.outputs: dict[str, str] = {}
        self.metrics: Any = SimpleNamespace(cache=lambda answer, steps: None)

    async def look_up(self, asks: Sequence[LookUpCache]) -> list[Answer]:
        return [Answer(one.key, one.run_id, one.step, self.outputs[one.tenant]) for one in asks]

    async def fill(self, fillings: Sequence[Filling]) -> list[Answer]:
        return [
            Answer(one.key, f"{one.tenant}{n}", "a", one.output)
            for one in fillings
            for n in range(WAITERS)
        ]

    async def release(self, releases: Sequence[ReleaseCache]) -> list[Answer]:
        return [Answer(one.key, f"next of {one.run_id}", one.step) for one in releases]

    async def sweep(self, limit: int) -> int:
        return 0

    async def wait_for_capacity(self) -> None:
        return

    def publish_durable(self, subject: str, payload: bytes, **_: Any) -> "asyncio.Future[None]":
        self.now_ms += self.takes_ms
        self.posted.append(payload)
        future = asyncio.get_running_loop().create_future()
        if self.acknowledges:
            future.set_result(None)
        else:
            self.open.setdefault(json.loads(payload)["run_id"][0], []).append(future)
        self.some.set()
        return future

    def runs(self) -> list[str]:
        """Return the runs that answers were posted to, in order."""
        return [json.loads(payload)["run_id"] for payload in self.posted]

    async def until(self, posts: int) -> None:
        while len(self.posted) < posts:
            self.some.clear()
            await self.some.wait()

    async def settled(self) -> None:
        """Wait until nothing more is posted, however many turns the loop gives."""
        before = -1
        while before != len(self.posted):
            before = len(self.posted)
            for _ in range(100):
                await asyncio.sleep(0)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    found = Parts()
    monkeypatch.setattr(turns, "monotonic_ms", lambda: found.now_ms)
    return found


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[StepCache]:
    cache = StepCache(parts, parts, parts.metrics, partitions=4)  # type: ignore[arg-type]
    task = asyncio.create_task(cache.run())
    try:
        async with asyncio.timeout(BOUND_S):
            yield cache
    finally:
        task.cancel()
        await asyncio.wait({task})


def ask(tenant: str, number: int, key: str) -> LookUpCache:
    return LookUpCache(key, tenant, f"{tenant}{number}", "a", ttl_ms=9, claim_until_ms=9)


def fill(tenant: str, output: Any) -> FillCache:
    return FillCache(f"k{tenant}", tenant, "r", "a", ttl_ms=9, output=output, cost_usd=Decimal(0))


async def test_no_more_bytes_are_unacknowledged_than_the_bound_and_no_answer_is_lost(
    parts: Parts,
) -> None:
    async with running(parts) as cache:
        cache.fill(fill("a", "x" * MIB))
        await parts.settled()
        assert 1 <= len(parts.posted) <= 8
        while len(parts.posted) < WAITERS:
            parts.open["a"].pop(0).set_result(None)
            await parts.settled()
            assert len(parts.open["a"]) <= 8
    assert sorted(parts.runs()) == sorted(f"a{n}" for n in range(WAITERS))


async def test_a_tenant_whose_answers_are_not_acknowledged_holds_up_no_other(parts: Parts) -> None:
    parts.outputs = {"b": LARGE}
    async with running(parts) as cache:
        cache.fill(fill("a", "x" * MIB))
        await parts.settled()
        cache.look_up(ask("b", 0, "kb"))
        cache.release(ReleaseCache("kc", "c0", "a"))
        await parts.settled()
    assert {"b0", "next of c0"} <= set(parts.runs())


async def test_tenants_take_turns(parts: Parts) -> None:
    parts.outputs = {"b": LARGE}
    async with running(parts) as cache:
        cache.fill(fill("a", "x" * MIB))
        cache.look_up(ask("b", 0, "kb"))
        parts.acknowledges = True
        await parts.until(WAITERS + 1)
    assert parts.runs().index("b0") < WAITERS


async def test_the_loop_has_turns_after_ten_milliseconds_of_answers(parts: Parts) -> None:
    parts.acknowledges, parts.takes_ms = True, 3.0
    between: list[int] = []

    async def turns_of_others() -> None:
        while True:
            between.append(len(parts.posted))
            await asyncio.sleep(0)

    others = asyncio.create_task(turns_of_others())
    async with running(parts) as cache:
        cache.fill(fill("a", "x"))
        await parts.until(WAITERS)
        await parts.settled()
    others.cancel()
    assert max(b - a for a, b in pairwise(between)) == 4


@pytest.mark.parametrize(
    "output",
    [
        "1",
        '"\\u0001 \\" \\"output\\":null ü"',
        '{"a":[null,{"output":null}],"b":1.5e300}',
        "[]",
        "null",
    ],
)
async def test_the_message_is_what_the_contract_writes(parts: Parts, output: str) -> None:
    name = 'r "output":null \\'
    text = to_json(json.loads(output)).decode()

    async def hit(asks: Sequence[LookUpCache]) -> list[Answer]:
        return [Answer(name, name, name, text, name, name, Decimal("0.010"))]

    parts.look_up = hit  # type: ignore[method-assign]
    async with running(parts) as cache:
        cache.look_up(ask("r", 0, "k"))
        await parts.until(1)
    told = CacheAnswered(
        run_id=name,
        step=name,
        key=name,
        hit=True,
        output=json.loads(output),
        computed_by_run=name,
        computed_by_step=name,
        saved_usd=Decimal("0.010"),
    )
    assert parts.posted == [told.model_dump_json().encode()]


async def test_outputs_that_wait_to_be_posted_are_bounded_and_one_counts_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "MAX_QUESTIONS", 1)
    parts.outputs = {"b": ""}
    asked: list[str] = []
    look_up = parts.look_up

    async def other_texts(asks: Sequence[LookUpCache]) -> list[Answer]:
        asked.extend(one.run_id for one in asks)
        parts.outputs["b"] = json.dumps("x" * MIB + asks[0].run_id)
        return await look_up(asks)

    parts.look_up = other_texts  # type: ignore[method-assign]
    async with running(parts) as cache:
        cache.fill(fill("a", "x" * 10 * MIB))
        await parts.settled()
        for n in range(40):
            cache.look_up(ask("b", n, f"k{n}"))
        await parts.settled()
        assert 20 <= len(asked) <= 30, "32 MiB: one of 10 MiB for all that wait for it, and others"
        parts.acknowledges = True
        while len(parts.posted) < WAITERS + 40:
            for futures in parts.open.values():
                while futures:
                    futures.pop().set_result(None)
            await parts.settled()
    assert len(set(parts.runs())) == WAITERS + 40


async def test_a_question_that_is_asked_again_before_its_answer_is_posted_has_one_answer(
    parts: Parts,
) -> None:
    parts.outputs = {"a": LARGE}
    async with running(parts) as cache:
        for _ in range(3):
            for n in range(8):
                cache.look_up(ask("a", n, "k"))
            await parts.settled()
        while parts.open["a"]:
            parts.open["a"].pop().set_result(None)
            await parts.settled()
    runs = parts.runs()
    assert [runs.count(f"a{n}") for n in range(4, 8)] == [1] * 4
