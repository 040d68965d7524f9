"""Runs that Postgres has, and this process not: those in flight when the partition is taken, those that
were parked, and what is in flight of a run, handed out again."""

import asyncio

import structlog
from immutables import Map

from hocket.coordinator.core.rows.records import restore
from hocket.coordinator.core.run.aborting import reason_of
from hocket.coordinator.core.run.decide import resume
from hocket.coordinator.core.run.state import Run, Step
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.measurements import Measurements
from hocket.coordinator.partition.runs.failed_runs import FailedRuns
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.pipeline_catalog import Entry
from hocket.coordinator.storage.source_runs import Origins
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY, fails_alone
from hocket.kit.process.clock import now_ms
from hocket.kit.process.memory import end_if_short

PAUSE_S = 0.2

log = structlog.get_logger(__name__)


class RunLoader:
    """That of one partition in one tenure, of this epoch."""

    def __init__(
        self,
        services: SharedServices,
        *,
        epoch: int,
        runs: Runs,
        measurements: Measurements,
        origins: Origins,
        recorder: DecisionRecorder,
        failed: FailedRuns,
    ) -> None:
        self._services = services
        self._epoch = epoch
        self._runs = runs
        self._measurements = measurements
        self._origins = origins
        self._recorder = recorder
        self._failed = failed
        self._redispatching: asyncio.Task[None] | None = None

    async def find(self, run_id: str) -> Run | None:
        """Return a run: from memory, or one that is parked and comes back, or that ended before."""
        run = self._runs.get(run_id)
        if run is not None:
            return run
        stored = await self._services.store.stored(run_id)
        if stored is None:
            return None
        found, steps = stored
        if found.ended:
            kept = {} if isinstance(steps, Exception) else {step.key: step for step in steps}
            ended = replace(found, steps=Map(kept))
            self._runs.remember(ended)
            return ended
        self._runs.marked.add(run_id)
        await self.load(found, steps)
        self._services.metrics.woken()
        return self._runs.get(run_id)

    async def load(self, run: Run, steps: list[Step] | Exception) -> None:
        """Go on with a run that Postgres has; one that cannot be read back ends with an error."""
        try:
            if isinstance(steps, Exception):
                raise steps
            await self._go_on(run, steps)
        except (*AWAY, BusUnavailable):
            raise
        except Exception as error:
            end_if_short(error)
            if not await fails_alone(error, self._services.store.ping):
                raise
            log.exception("run_not_restored", run_id=run.run_id)
            self._failed.not_restored(run, steps if isinstance(steps, list) else [], error)

    def redispatch(self) -> None:
        """Hand every attempt in flight out again: the server came back and may have lost steps.
        Streams drop what they still have; a step that was lost runs."""
        without_plan: list[str] = []
        for run in list(self._runs.in_flight.values()):
            entry = self._services.catalog.ready(run.tenant, run.pipeline, run.version)
            if entry is None:
                without_plan.append(run.run_id)
            else:
                self._resume(run, entry)
        if without_plan:  # more versions are in flight than plans are kept
            self._redispatching = asyncio.create_task(self._redispatch(without_plan))

    def stop(self) -> None:
        """Hand nothing out any more."""
        if self._redispatching is not None:
            self._redispatching.cancel()

    async def _redispatch(self, run_ids: list[str]) -> None:
        catalog = self._services.catalog
        for run_id in run_ids:
            while (run := self._runs.in_flight.get(run_id)) is not None:
                try:
                    entry = await catalog.entry(run.tenant, run.pipeline, run.version)
                except Exception as error:
                    end_if_short(error)
                    log.warning("plan_not_read", run_id=run_id, reason=reason_of(error))
                    if await fails_alone(error, self._services.store.ping):
                        self._failed.not_restored(run, list(run.steps.values()), error)
                        break
                    await asyncio.sleep(PAUSE_S)
                    continue
                if self._runs.in_flight.get(run_id) is run:
                    self._resume(run, entry)
                    break

    async def _go_on(self, run: Run, steps: list[Step]) -> None:
        entry = await self._services.catalog.entry(run.tenant, run.pipeline, run.version)
        restored = restore(run, steps, entry.plan)
        reuse = await self._origins.reuse(run.tenant, run.origin, entry.plan)
        self._resume(replace(restored, reuse=reuse), entry)

    def _resume(self, run: Run, entry: Entry) -> None:
        """Hand out again what is in flight of a run; one whose rules cannot say what that is ends."""
        try:
            outlook = self._measurements.outlook(run, entry)
            self._services.load.resumed(run, entry.plan, outlook)
            decision = resume(
                run,
                now_ms=now_ms(),
                plan=entry.plan,
                outlook=outlook,
                epoch=self._epoch,
                capabilities=self._services.capabilities,
            )
        except Exception as error:
            end_if_short(error)
            log.exception("run_not_resumed", run_id=run.run_id)
            self._failed.not_restored(run, list(run.steps.values()), error)
            return
        self._runs.put(decision.run)
        self._recorder.carry_out_again(run, decision.commands)
