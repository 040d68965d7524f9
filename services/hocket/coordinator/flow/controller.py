"""Decides which waiting runs start, and tells their partitions' logs.

Every coordinator decides about what its own commits changed, directly after them, a few pipelines at a
time (`touched_queues.py`); a decision is in Postgres before it is told. In addition, the coordinator
that owns partition NET_OF looks every NET_EVERY_S for what was committed and not decided, or decided
and not told, because a process died in between. It does not look while NATS is away, when the same
runs would be told again each time. A decision has one message id however often it is told, so that a
log that is read slowly is not filled with repeats. Nothing here needs to be durable: what this object
forgets, that look finds.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

import structlog

from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.flow.store import FlowOutcome, FlowStore
from hocket.coordinator.flow.touched_queues import TouchedQueues
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.messages import CancelRequested, FlowDecided

NET_OF = 0
NET_EVERY_S = 2.0
SWEEP_EVERY_S = 30.0
PAUSE_S = 0.2
AT_ONCE = 3
"""How many pipelines are decided at once: each takes a connection of the coordinator's pool."""
BY = "flow control"

log = structlog.get_logger(__name__)


class FlowController:
    """Decides for one coordinator. `is_mine` tells whether this one also looks for what others left."""

    def __init__(
        self,
        bus: Bus,
        store: FlowStore,
        posts: LogPosts,
        metrics: CoordinatorMetrics,
        *,
        is_mine: Callable[[], bool],
    ) -> None:
        self._bus = bus
        self._store = store
        self._posts = posts
        self._metrics = metrics
        self._is_mine = is_mine
        self._queues = TouchedQueues()
        self._some = asyncio.Event()
        self._after: FlowQueue | None = None
        self._swept_ms = monotonic_ms()

    def touch(self, queues: Sequence[FlowQueue]) -> None:
        """Have these queues decided soon, because a commit changed something in them."""
        self._queues.touch(queues)
        self._some.set()

    async def run(self) -> None:
        """Decide as queues change; never returns, cancel to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look())
            for _ in range(AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        """Decide one pipeline after the other; never returns."""
        while True:
            queues = await self._taken()
            of = next(iter(queues))
            await self._decide(of.tenant, of.pipeline, queues)
            self._queues.decided(of.tenant, of.pipeline)
            self._some.set()

    async def _taken(self) -> Collection[FlowQueue]:
        """Wait until a pipeline may be decided that was touched, or in which time alone lets a run
        pass; return its queues."""
        while not (queues := self._queues.take(monotonic_ms())):
            self._some.clear()
            due_ms = self._queues.first_due_ms
            timeout_s = None if due_ms is None else max(0.0, due_ms - monotonic_ms()) / 1_000
            try:
                async with asyncio.timeout(timeout_s):
                    await self._some.wait()
            except TimeoutError:
                continue
        return queues

    async def _decide(self, tenant: str, pipeline: str, queues: Collection[FlowQueue]) -> None:
        try:
            outcome = await self._store.decide(tenant, pipeline, queues)
        except Exception as error:  # away, or another coordinator holds the lock: tried again
            log.warning("flow_waits", tenant=tenant, pipeline=pipeline, reason=reason_of(error))
            await asyncio.sleep(PAUSE_S)
            self._queues.put_back(queues)
            return
        await self._tell(outcome)
        now_ms = monotonic_ms()
        for queue, in_ms in outcome.due.items():
            self._queues.touch_later(queue, now_ms + in_ms)
        self._queues.touch(outcome.again)

    async def _tell(self, outcome: FlowOutcome, *, again: bool = False) -> None:
        """Tell the runs' logs what was decided about them."""
        for run_id in outcome.started:
            await self._bus.wait_for_capacity()
            self._posts.post_to_run(FlowDecided(run_id=run_id), f"{run_id}:flow:started")
        for run_id, error in outcome.refused:
            await self._bus.wait_for_capacity()
            refusal = FlowDecided(run_id=run_id, refused=error)
            self._posts.post_to_run(refusal, f"{run_id}:flow:refused")
        for run_id, by in outcome.replaced:
            await self._bus.wait_for_capacity()
            reason = f"run {by} of the same key arrived"
            request = CancelRequested(run_id=run_id, reason=reason, by=BY)
            self._posts.post_to_run(request, f"{run_id}:flow:replaced")
        if not again:
            self._metrics.flow_decided("started", len(outcome.started))
            self._metrics.flow_decided("replaced", len(outcome.replaced))
            for _, error in outcome.refused:
                self._metrics.flow_decided(error.code, 1)
        elif outcome.started or outcome.refused or outcome.replaced:
            told = len(outcome.started) + len(outcome.refused) + len(outcome.replaced)
            self._metrics.flow_decided("told_again", told)

    async def _look(self) -> None:
        """Look for what was left undone; never returns."""
        while True:
            await asyncio.sleep(NET_EVERY_S)
            if not self._is_mine() or not self._bus.connected:
                continue
            try:
                await self._find_left()
            except Exception as error:  # tried again in a moment
                log.warning("flow_not_looked_at", reason=reason_of(error))

    async def _find_left(self) -> None:
        if not await self._store.any_waits():
            return
        await self._tell(await self._store.untold(), again=True)
        queues = await self._store.waiting(self._after)
        self._after = queues[-1] if queues else None
        self.touch(queues)
        now_ms = monotonic_ms()
        if now_ms - self._swept_ms >= 1_000 * SWEEP_EVERY_S:
            self._swept_ms = now_ms
            self.touch(tuple(await self._store.sweep()))
