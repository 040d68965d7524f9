"""Loads runs that are only in Postgres: those in flight when the partition is taken, and those that
were parked; and hands out again what is in flight of a run."""

import asyncio
from collections.abc import Iterator, Sequence

import structlog

from hocket.coordinator.core.run.commands import Wake
from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.core.run.machine import resume
from hocket.coordinator.core.run.state.restore import StoredRun, readable
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.runs.failed_runs import FailedRuns
from hocket.coordinator.partition.runs.run_cache import LookedUp
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.storage.decided_rows import as_decided, read_back
from hocket.kit.logs.run_lines import of_run
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY, fails_alone
from hocket.kit.process.clock import now_ms
from hocket.kit.process.limits.memory import end_if_short

PAUSE_S = 0.2

log = structlog.get_logger(__name__)


class RunLoader:
    """Loads the runs of one partition in one tenure."""

    def __init__(
        self, context: TenureContext, recorder: DecisionRecorder, failed: FailedRuns
    ) -> None:
        self._services = context.services
        self._owner = context.owner
        self._tenure = context.tenure
        self._runs = context.runs
        self._measurements = context.measurements
        self._origins = context.origins
        self._recorder = recorder
        self._failed = failed

    async def find(self, run_id: str) -> Run | None:
        """Return a run: from memory, or one that was parked, had ended, or was dropped because an
        event left it half changed; None if there is no such run."""
        run = self._runs.get(run_id)
        if run is not None:
            return run
        stored = await self._decided(run_id)
        if stored is None:
            return None
        if stored.row["finished_at"] is not None:
            run = await self._ended(stored)
            self._runs.remember(run)
            return run
        was_parked = stored.row["parked_until"] is not None
        if was_parked:
            self._runs.marked.add(run_id)
        await self.load(stored)
        if was_parked:
            self._services.metrics.woken()
        return self._runs.get(run_id)

    async def again(self, run: Run, error: Exception) -> Run:
        """Return a run as it was before an event that raised; the event is applied once more."""
        end_if_short(error)
        log.warning(
            "event_applied_anew", **of_run(run.run_id, run.traceparent), reason=reason_of(error)
        )
        found = await self.find(run.run_id)
        assert found is not None, run.run_id
        return found

    async def with_steps(self, run: Run) -> Run:
        """Return a run that has ended with its steps, if it was remembered without them: a new owner
        reads only the own rows of those that ended last."""
        stored = await self._decided(run.run_id)
        if stored is None or stored.row["finished_at"] is None:
            return run
        whole = await self._ended(stored)
        self._runs.remember(whole)
        return whole

    async def row_of(self, run_id: str) -> Run | None:
        """Return a run that is not in memory without its steps, if all that is decided of it is in
        Postgres."""
        if self._tenure.unwritten.of(run_id):
            return None
        return (await self._services.store.known([run_id])).get(run_id)

    async def look_up(self, run_ids: Sequence[str]) -> None:
        """Read together the runs that the events of one message name, unless they are in memory.
        Nothing is read while Postgres is away: `find` then reads each."""
        wanted = [run_id for run_id in run_ids if self._runs.get(run_id) is None]
        if len(wanted) < 2:
            return
        unwritten = {run_id: self._tenure.unwritten.of(run_id) for run_id in wanted}
        try:
            stored = await self._services.store.all_stored_for_events(wanted)
        except AWAY:
            return
        for run_id in wanted:
            if self._runs.get(run_id) is None:
                found = LookedUp(stored.get(run_id), unwritten[run_id])
                self._runs.looked_up[run_id] = found

    async def load(self, stored: StoredRun) -> None:
        """Continue a run that Postgres has; one that cannot be read back ends with an error."""
        try:
            await self._go_on(stored)
        except (*AWAY, BusUnavailable):
            raise
        except Exception as error:
            end_if_short(error)
            if not await fails_alone(error, self._services.store.ping):
                raise
            if self._runs.get(stored.row["run_id"]) is not None:
                return  # Postgres refused its rows meanwhile, and it was set aside for that
            log.exception(
                "run_not_restored", **of_run(stored.row["run_id"], stored.row["traceparent"])
            )
            self._failed.not_restored(stored, error)

    def redispatch(self) -> Iterator[None]:
        """Hand every attempt in flight out again, because the server came back and may have lost
        steps. Streams drop what they still have; a step that was lost runs. Yields after each run:
        events may be applied before the next one."""
        runs = self._runs
        for run_id in runs.dropped:
            runs.dropped[run_id] = False  # handed out once the run is read back
        for run_id in list(runs.in_flight):
            run = runs.in_flight.get(run_id)
            if run is not None:
                self._resume(run)
                yield
            elif run_id in runs.dropped:  # meanwhile
                runs.dropped[run_id] = False

    async def read_back(self) -> None:
        """Read back the runs that an event left half changed: the log may have lost that event, and
        nothing else may ever name them. Waits for Postgres."""
        for run_id in list(self._runs.dropped):
            while True:
                try:
                    await self.find(run_id)
                    self._runs.dropped.pop(run_id, None)  # in case there is no such run any more
                    break
                except AWAY as error:
                    log.warning("run_waits", run_id=run_id, reason=str(error))
                    await asyncio.sleep(PAUSE_S)

    async def _decided(self, run_id: str) -> StoredRun | None:
        """Return the rows of a run as they were decided."""
        found = self._runs.looked_up.pop(run_id, None)
        if found is None:
            unwritten = self._tenure.unwritten.of(run_id)
            found = LookedUp(await self._services.store.stored_for_events(run_id), unwritten)
        return as_decided(*found)

    async def _go_on(self, stored: StoredRun) -> None:
        run, fault = readable(stored.row)
        if fault is not None:
            raise fault
        entry = await self._services.catalog.entry(run.tenant, run.pipeline, run.version)
        begun_ms = self._services.turns.begin()
        run = await read_back(stored, entry.compiled, self._owner)
        self._services.turns.worked(begun_ms)
        origin = await self._origins.stored(run.tenant, run.origin)
        run.reuse = await self._origins.reuse(origin, run.origin, entry.compiled)
        if self._runs.get(run.run_id) is None:  # otherwise it was set aside meanwhile
            self._resume(run)

    async def _ended(self, stored: StoredRun) -> Run:
        """Return a run that has ended, with its steps (but not their values) if they can be read
        back."""
        run, fault = readable(stored.row)
        if fault is not None or not run.version:
            return run
        try:
            entry = await self._services.catalog.entry(run.tenant, run.pipeline, run.version)
            return await read_back(stored, entry.compiled, self._owner)
        except AWAY:
            raise
        except Exception as error:  # nothing is done to it any more
            end_if_short(error)
            log.warning(
                "ended_run_not_restored",
                **of_run(run.run_id, run.traceparent),
                reason=reason_of(error),
            )
            return run

    def _resume(self, run: Run) -> None:
        """Hand out again what is in flight of a run; end it if its rules cannot determine that."""
        begun_ms = self._services.turns.begin()
        try:
            forecast = self._measurements.forecast_for(run)
            assert forecast is not None, run.run_id
            assert run.plan is not None, run.run_id
            self._services.load.resumed(run, run.plan.source, forecast.expected)
            outcome = resume(run, now_ms(), forecast)
        except Exception as error:
            end_if_short(error)
            log.exception("run_not_resumed", **of_run(run.run_id, run.traceparent))
            self._failed.not_resumed(run, error)
            return
        self._runs.put(run)
        if self._runs.dropped.pop(run.run_id, False):  # its attempts are still out
            outcome.commands = [one for one in outcome.commands if isinstance(one, Wake)]
        self._recorder.carry_out_again(outcome)
        self._recorder.hand_out_committed(run.run_id)
        self._services.turns.worked(begun_ms)
