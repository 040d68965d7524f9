"""The tables of flow control as dictionaries, as in `hocket.coordinator.flow.store.FlowStore`.

The product's own rule is applied to their content, and every decision is made at one instant, as under
the lock of its pipeline."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hocket.coordinator.core.flow.decisions import Passed, Waiting, decide, newest_first, room
from hocket.coordinator.core.run.state.columns import FLOW_COLUMNS
from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.flow.store import TOLD_WITHIN_S, FlowOutcome
from hocket.coordinator.storage.commit_batch import Batch
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.pipeline.flow.spec import FLOW_KINDS
from simulation.engine.world import EPOCH_S, Process, World

if TYPE_CHECKING:
    from simulation.engine.database import Database


@dataclass
class Place:
    """The state of a run at a gate; times are Unix milliseconds."""

    queue: FlowQueue
    rule: dict[str, Any]
    accepted_at_ms: float
    is_last: bool
    state: str
    changed_at_ms: float
    error: ErrorInfo | None = None
    replaced_by: str | None = None


class FlowTables:
    """The statements, each executed at one instant."""

    def __init__(self, world: World) -> None:
        self.places: dict[tuple[str, int], Place] = {}
        self._world = world

    @property
    def _now_ms(self) -> float:
        return 1_000 * (EPOCH_S + self._world.now_s)

    def write(self, batch: Batch) -> list[FlowQueue]:
        """Write the places of a batch's runs, and delete those of runs that end in it."""
        touched: dict[FlowQueue, None] = {}
        for values in batch.flow:
            row = dict(zip(FLOW_COLUMNS, values, strict=True))
            queue = FlowQueue(*(row[name] for name in FlowQueue._fields))
            state = "ahead" if row["gate"] else "waiting"
            place = Place(
                queue,
                json.loads(row["rule"]),
                row["accepted_at"],
                row["is_last"],
                state,
                self._now_ms,
            )
            self.places.setdefault((row["run_id"], row["gate"]), place)
            touched[queue] = None
        for key in [key for key in self.places if key[0] in batch.left]:
            touched[self.places.pop(key).queue] = None
        return list(touched)

    def decide(self, queues: Collection[FlowQueue]) -> FlowOutcome:
        """Decide about the runs that wait in these queues, and in the queues that they move on to."""
        outcome, todo = FlowOutcome(), dict.fromkeys(queues)
        for kind in FLOW_KINDS:
            for queue in [queue for queue in todo if queue.kind == kind]:
                todo |= dict.fromkeys(self._decide(queue, outcome))
        return outcome

    def _decide(self, queue: FlowQueue, outcome: FlowOutcome) -> list[FlowQueue]:
        at = {key: place for key, place in self.places.items() if place.queue == queue}
        held = sorted(run_id for (run_id, _), one in at.items() if one.state == "passed")
        waiting = sorted(
            (one.accepted_at_ms, run_id, gate, one.rule)
            for (run_id, gate), one in at.items()
            if one.state == "waiting"
        )
        if not waiting:
            return []
        passed = Passed(len(held), held[0] if held else "")
        most = room(queue.kind, waiting[0][3], passed, self._now_ms)
        some = waiting[-most:] if newest_first(queue.kind, waiting[0][3]) else waiting[:most]
        runs = [Waiting(run_id, gate, at_ms, at_ms, rule) for at_ms, run_id, gate, rule in some]
        decision = decide(queue.kind, runs if most else [], passed, self._now_ms)
        if decision.next_at_ms is not None:
            outcome.due[queue] = decision.next_at_ms - self._now_ms
        for one, error in decision.refused:
            self._move(one, "refused", error)
            outcome.refused.append((one.run_id, error))
        for run_id, by in decision.replaced:
            for key, place in at.items():
                if key[0] == run_id and place.replaced_by is None:
                    place.replaced_by = by
                    outcome.replaced.append((run_id, by))
        return [next_ for one in decision.passed for next_ in self._pass(one, outcome)]

    def _pass(self, one: Waiting, outcome: FlowOutcome) -> list[FlowQueue]:
        if self._move(one, "passed").is_last:
            outcome.started.append(one.run_id)
            return []
        place = self.places[one.run_id, one.gate + 1]
        place.state = "waiting"
        return [place.queue]

    def _move(self, one: Waiting, state: str, error: ErrorInfo | None = None) -> Place:
        place = self.places[one.run_id, one.gate]
        place.state, place.error, place.changed_at_ms = state, error, self._now_ms
        return place

    def untold(self, database: "Database") -> FlowOutcome:
        """Return what was decided a while ago and has not reached the runs."""
        outcome = FlowOutcome()
        for (run_id, _), place in self.places.items():
            if place.changed_at_ms > self._now_ms - 1_000 * TOLD_WITHIN_S:
                continue
            if place.replaced_by is not None:
                outcome.replaced.append((run_id, place.replaced_by))
            if place.error is not None:
                outcome.refused.append((run_id, place.error))
            elif place.state == "passed" and place.is_last and not database.steps.get(run_id):
                outcome.started.append(run_id)
        return outcome

    def waiting(self) -> list[FlowQueue]:
        """Return the queues in which runs wait."""
        return sorted({one.queue for one in self.places.values() if one.state == "waiting"})

    def sweep(self, database: "Database") -> set[FlowQueue]:
        """Delete the places of ended runs that were not deleted with the end."""
        gone = [key for key in self.places if database.runs[key[0]]["finished_at"] is not None]
        return {self.places.pop(key).queue for key in gone}


class SimulatedFlowStore:
    """The flow store of one process, on the shared database: a `FlowStore` of
    `hocket.coordinator.flow`."""

    def __init__(self, database: "Database", process: Process) -> None:
        self._database = database
        self._process = process

    async def decide(
        self, tenant: str, pipeline: str, queues: Collection[FlowQueue]
    ) -> FlowOutcome:
        return await self._ask(lambda: self._database.flow.decide(queues))

    async def any_waits(self) -> bool:
        return await self._ask(lambda: bool(self._database.flow.places))

    async def untold(self) -> FlowOutcome:
        return await self._ask(lambda: self._database.flow.untold(self._database))

    async def waiting(self, after: FlowQueue | None) -> list[FlowQueue]:
        return await self._ask(self._database.flow.waiting)

    async def sweep(self) -> set[FlowQueue]:
        return await self._ask(lambda: self._database.flow.sweep(self._database))

    async def _ask(self, statement: Any) -> Any:
        from simulation.engine.database import asked

        return await asked(self._database, self._process, statement)
