"""The runs that others repeat, as stored in Postgres: a run that has ended never changes, so every
reading gives the same."""

import asyncio

import structlog

from hocket.coordinator.core.run.constructs.reuse import Reuse, reuse_of
from hocket.coordinator.core.run.faults import RunNotRestorable, reason_of
from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.core.run.state.restore import StoredRun, readable
from hocket.coordinator.core.run.state.run import Owner, Run
from hocket.coordinator.storage.decided_rows import MANY_STEPS, read_back
from hocket.coordinator.storage.pipelines.pipeline_catalog import Catalog
from hocket.coordinator.storage.store import Store
from hocket.kit.logs.run_lines import of_run
from hocket.schemas.errors import HocketError, RunUnknown
from hocket.schemas.messages import RunOrigin
from hocket.schemas.repeats import StepPlace

log = structlog.get_logger(__name__)


class Origins:
    """Reads origin runs for intake, which checks them, and for partitions, which take over from them."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    async def run(self, tenant: str, asked: RunOrigin) -> Run:
        """Return the origin's own row, or raise RunUnknown."""
        row = await self._store.row(asked.run_id)
        if row is None or row["tenant"] != tenant:
            raise RunUnknown(run_id=asked.run_id)
        run, fault = readable(row)
        if fault is not None:
            raise RunNotRestorable(run_id=asked.run_id, reason=reason_of(fault))
        return run

    async def place(self, asked: RunOrigin) -> StepPlace | None:
        """Return the place of the step that a re-run begins with, if it names an existing one."""
        if asked.from_step is None:
            return None
        return await self._store.place(asked.run_id, asked.from_step)

    async def stored(self, tenant: str, asked: RunOrigin | None) -> StoredRun | None:
        """Return the origin with its steps, as it is stored now; None if it is missing (possible for a
        sub-run's)."""
        if asked is None:
            return None
        found = await self._store.stored(asked.run_id)
        return None if found is None or found.row["tenant"] != tenant else found

    async def reuse(
        self, found: StoredRun | None, asked: RunOrigin | None, plan: PipelinePlan
    ) -> Reuse | None:
        """Return what a run of a plan takes over from its origin, as `stored` found it: nothing if it is
        missing or had not ended (possible for a sub-run's), or if this release cannot read its pipeline
        any more."""
        if asked is None or found is None:
            return None
        run, _ = readable(found.row)
        if not run.has_ended:
            return None
        try:
            entry = await self._catalog.entry(run.tenant, run.pipeline, run.version)
            origin = await _origin(found, entry.compiled)
            if len(origin.steps) < MANY_STEPS:
                return reuse_of(origin, plan, asked)
            return await asyncio.to_thread(reuse_of, origin, plan, asked)
        except HocketError as error:
            log.warning(
                "origin_not_read",
                **of_run(run.run_id, run.traceparent),
                code=error.code,
                reason=str(error),
            )
            return None


async def _origin(found: StoredRun, plan: PipelinePlan) -> Run:
    try:
        return await read_back(found, plan, Owner(found.row["partition"], 0, None))
    except Exception as error:
        reason = reason_of(error)
        raise RunNotRestorable(run_id=found.row["run_id"], reason=reason) from None
