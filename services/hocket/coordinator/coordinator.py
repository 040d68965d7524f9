"""The coordinator: intake, its share of the partitions and one committer, over one bus and one
store. Its parts are assembled in `service.py`.

States: made, serving (`settled` once every partition has an owner), draining (asked to stop: what
was decided is written, partition by partition, and handed over to others, within DRAIN_S), ended.
It fails when one of its parts does. A partition that another coordinator took is dropped, and the
others go on.
"""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.flow.controller import FlowController
from hocket.coordinator.intake.intake import Intake
from hocket.coordinator.intake.task_trimmer import TaskTrimmer
from hocket.coordinator.intake.waiting_tenants import WaitingTenants
from hocket.coordinator.ownership.leases import Ownership
from hocket.coordinator.partition.events.log_trimmer import LogTrimmer
from hocket.coordinator.partition.partition_set import PartitionSet
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.step_cache import StepCache
from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks

DRAIN_S = 8.0


class Coordinator:
    """One coordinator process: its partitions, intake and dispatch."""

    def __init__(
        self,
        bus: Bus,
        *,
        durations: Durations,
        committer: Committer,
        step_cache: StepCache,
        dispatcher: Dispatcher,
        partitions: PartitionSet,
        trimmer: LogTrimmer,
        task_trimmer: TaskTrimmer,
        waiting: WaitingTenants,
        ownership: Ownership,
        intake: Intake,
        flow: FlowController | None = None,
    ) -> None:
        self._bus = bus
        self._durations = durations
        self._committer = committer
        self._step_cache = step_cache
        self._dispatcher = dispatcher
        self._partitions = partitions
        self._trimmer = trimmer
        self._task_trimmer = task_trimmer
        self._waiting = waiting
        self._ownership = ownership
        self._intake = intake
        self._flow = flow

    def owns(self, number: int) -> bool:
        """Tell whether this coordinator owns a partition."""
        return number in self._partitions

    async def settled(self) -> None:
        """Wait until every partition has a live owner, and this coordinator reads its own."""
        await self._ownership.settled.wait()

    async def run(self, stopping: asyncio.Event) -> None:
        """Coordinate until `stopping` is set; raise the error of a part that failed."""
        async with AsyncExitStack() as stack:
            stack.callback(self._partitions.close)
            tasks: list[asyncio.Task[Any]] = []
            stack.push_async_callback(self._stop, tasks)
            await self._dispatcher.open()
            self._bus.on_reconnect.append(self._partitions.came_back)
            stack.callback(self._bus.on_reconnect.remove, self._partitions.came_back)
            owning = asyncio.create_task(self._ownership.run(), name="ownership")
            admitting = asyncio.create_task(self._intake.run(), name="intake")
            committing = asyncio.create_task(self._committer.run(), name="commit")
            others = [
                asyncio.create_task(self._step_cache.run(), name="step-cache"),
                asyncio.create_task(self._durations.run(), name="durations"),
                asyncio.create_task(self._partitions.upkeep(), name="upkeep"),
                asyncio.create_task(stopping.wait(), name="stopping"),
                asyncio.create_task(self._dispatcher.run(), name="dispatch"),
            ]
            waking = asyncio.create_task(self._partitions.wake_parked(), name="parked")
            looking = asyncio.create_task(
                self._waiting.run(self._intake.more), name="waiting-tenants"
            )
            trimming = [
                asyncio.create_task(self._trimmer.run(), name="log-trimmer"),
                asyncio.create_task(self._task_trimmer.run(), name="task-trimmer"),
            ]
            if self._flow is not None:
                others.append(asyncio.create_task(self._flow.run(), name="flow"))
            tasks += [owning, waking, admitting, committing, *others, looking, *trimming]
            await self._until_ended(tasks)
            admitting.cancel()
            handing_over = asyncio.create_task(self._ownership.hand_over(), name="handing-over")
            stack.callback(handing_over.cancel)
            await self._until_ended([owning, committing, handing_over], timeout_s=DRAIN_S)

    async def _stop(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Stop all tasks, and wait until they have ended."""
        await stop_tasks([*tasks, *self._partitions.readings()])

    async def _until_ended(
        self, tasks: list[asyncio.Task[Any]], timeout_s: float | None = None
    ) -> None:
        """Wait until one of the tasks has ended, or a partition cannot be read; raise its error."""
        done, _ = await asyncio.wait(
            {*tasks, self._partitions.unreadable},
            timeout=timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for ended in done:
            ended.result()
