"""Turns a task into its acceptance: checked against its pipeline, and against the run that it
repeats."""

from functools import partial
from typing import NamedTuple

from hocket.coordinator.intake.task_message import Task, admit
from hocket.coordinator.storage.pipelines.pipeline_catalog import Catalog
from hocket.coordinator.storage.source_runs import Origins
from hocket.kit.nats import cloudevents
from hocket.kit.process.clock import now_ms
from hocket.schemas import subjects
from hocket.schemas.errors import InvalidInput
from hocket.schemas.messages import RunAccepted
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.repeats import check_repeat


class Acceptable(NamedTuple):
    """A valid task: its acceptance, and the plan of its pipeline."""

    accepted: RunAccepted
    plan: Plan


class TaskAcceptance:
    """Checks tasks against what Postgres knows of pipelines and of runs to repeat."""

    def __init__(self, catalog: Catalog, origins: Origins) -> None:
        self._catalog = catalog
        self._origins = origins

    async def accepted(self, task: Task, task_ack: str, checked_at_ms: float | None) -> Acceptable:
        """Return the acceptance of a task, or raise what is wrong with it. `task_ack` travels with
        it to the commit of its run; `checked_at_ms`: when its run was looked up, if it was."""
        make = partial(admit, task, task_ack=task_ack, checked_at_ms=checked_at_ms)
        if task.origin is None:
            entry = await self._catalog.entry_for(
                task.tenant, task.pipeline, task.version, task.run_id
            )
            return Acceptable(make(entry.plan, entry.version, now_ms=now_ms()), entry.plan)
        origin = await self._origins.run(task.tenant, task.origin)
        if origin.pipeline != task.pipeline:
            raise InvalidInput(
                field=cloudevents.ORIGIN_RUN,
                reason=f"run `{origin.run_id}` belongs to pipeline `{origin.pipeline}`",
                cure=f"Publish on {subjects.task(task.tenant, origin.pipeline)}.",
            )
        version = task.version or origin.version
        entry = await self._catalog.entry_for(task.tenant, task.pipeline, version, task.run_id)
        place = await self._origins.place(task.origin)
        check_repeat(
            task.origin,
            status=origin.status,
            from_step=place,
            plan=entry.plan,
            version=version,
            run_input=task.input,
        )
        return Acceptable(make(entry.plan, version, now_ms=now_ms(), origin=origin), entry.plan)
