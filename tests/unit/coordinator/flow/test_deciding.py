"""Which pipelines are decided at once, and that none is decided twice, forgotten, or left behind."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.coordinator.flow import controller as module
from hocket.coordinator.flow.controller import FlowController
from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.flow.store import FlowOutcome

BOUND_S = 60.0


class Store:
    """Decides at once, except the tenants in `locked`: theirs wait until `unlocked`."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.unlocked = asyncio.Event()
        self.faults: list[Exception] = []
        self.outcomes: list[FlowOutcome] = []
        self.now = Counter[tuple[str, str]]()
        self.most = Counter[tuple[str, str]]()
        self.decided: list[list[FlowQueue]] = []
        self.some = asyncio.Event()

    async def decide(
        self, tenant: str, pipeline: str, queues: Collection[FlowQueue]
    ) -> FlowOutcome:
        of = (tenant, pipeline)
        assert {(one.tenant, one.pipeline) for one in queues} == {of}
        self.now[of] += 1
        self.most[of] = max(self.most[of], self.now[of])
        try:
            await asyncio.sleep(0)
            if tenant in self.locked:
                await self.unlocked.wait()
            if self.faults:
                raise self.faults.pop()
        finally:
            self.now[of] -= 1
        self.decided.append(list(queues))
        self.some.set()
        return self.outcomes.pop() if self.outcomes else FlowOutcome()

    async def until(self, *queues: FlowQueue) -> None:
        while not set(queues) <= {one for decided in self.decided for one in decided}:
            self.some.clear()
            await self.some.wait()


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[FlowController]:
    bus: Any = SimpleNamespace(connected=True)
    metrics: Any = SimpleNamespace(flow_decided=lambda decision, runs: None)
    controller = FlowController(bus, store, bus, metrics, is_mine=lambda: False)  # type: ignore[arg-type]
    task = asyncio.create_task(controller.run())
    try:
        async with asyncio.timeout(BOUND_S):
            yield controller
    finally:
        task.cancel()
        await asyncio.wait({task})


def queue(tenant: str, pipeline: str = "p", key: str = "k") -> FlowQueue:
    return FlowQueue(tenant, pipeline, "concurrency", key)


async def settled() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_tenant_whose_pipelines_are_locked_holds_up_no_other() -> None:
    store = Store()
    store.locked = {"a"}
    async with running(store) as controller:
        controller.touch([queue("a", f"p{n}") for n in range(5)])
        await settled()
        controller.touch([queue("b")])
        await store.until(queue("b"))
        assert store.decided == [[queue("b")]]
        store.unlocked.set()
        await store.until(*(queue("a", f"p{n}") for n in range(5)))
    assert len(store.decided) == 6


async def test_a_pipeline_is_decided_by_one_task_at_a_time_and_again_if_touched_meanwhile() -> None:
    store = Store()
    store.locked = {"a"}
    async with running(store) as controller:
        controller.touch([queue("a", key="k0")])
        await settled()
        controller.touch([queue("a", key="k0"), queue("a", key="k1")])
        await settled()
        store.unlocked.set()
        await store.until(queue("a", key="k1"))
        await settled()
    assert store.decided == [
        [queue("a", key="k0")],
        [queue("a", key="k0"), queue("a", key="k1")],
    ]
    assert store.most["a", "p"] == 1


async def test_tenants_take_turns_and_so_do_the_pipelines_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 1)
    store = Store()
    async with running(store) as controller:
        many = [queue("a", "p0", f"k{n}") for n in range(1_000)]
        controller.touch([*many, queue("a", "p1"), queue("b"), queue("c")])
        await store.until(*many)
    order = [(one[0].tenant, one[0].pipeline) for one in store.decided]
    assert order[:5] == [("a", "p0"), ("b", "p"), ("c", "p"), ("a", "p1"), ("a", "p0")]
    assert max(map(len, store.decided)) <= 300, "the lock is not held for long"
    assert Counter(one for decided in store.decided for one in decided).most_common(1)[0][1] == 1


async def test_a_decision_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    store = Store()
    store.faults = [TimeoutError("the lock is held"), ConnectionRefusedError("no database")]
    async with running(store) as controller:
        controller.touch([queue("a"), queue("b")])
        await store.until(queue("a"), queue("b"))
        await settled()
    assert sorted(store.decided) == [[queue("a")], [queue("b")]]


async def test_what_time_lets_pass_is_decided_while_others_are_locked() -> None:
    store = Store()
    store.locked = {"a"}
    store.outcomes = [FlowOutcome(due={queue("b"): 20.0})]
    async with running(store) as controller:
        controller.touch([queue("a", f"p{n}") for n in range(5)])
        controller.touch([queue("b")])
        while len(store.decided) < 2:
            store.some.clear()
            await store.some.wait()
    assert store.decided == [[queue("b")], [queue("b")]]


async def test_more_to_decide_is_decided_at_once() -> None:
    store = Store()
    store.outcomes = [FlowOutcome(again={queue("a", key="next")})]
    async with running(store) as controller:
        controller.touch([queue("a")])
        await store.until(queue("a", key="next"))


def own_tasks() -> set["asyncio.Task[Any]"]:
    """Return the tasks that run code of coordinators; clients of other tests have some, too."""
    return {
        task
        for task in asyncio.all_tasks()
        if "coordinator" in str(getattr(task.get_coro(), "cr_code", ""))
    }


async def test_stopping_leaves_no_task_behind() -> None:
    store, before = Store(), own_tasks()
    store.locked = {"a", "b"}
    async with running(store) as controller:
        controller.touch([queue("a"), queue("a", "q"), queue("b")])
        await settled()
        assert store.now.total() == 3
    assert own_tasks() == before
    assert store.now.total() == 0
