"""Which runs have already begun: a task may be delivered again, by its stream or by the log of a
restored server."""

from collections import OrderedDict
from collections.abc import Sequence

from hocket.coordinator.core.run.state.run import RUN_REJECTED, Run
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.kit.nats.consumers.delivery import stored_at_ms_of
from hocket.kit.postgres.errors import AWAY
from hocket.schemas.messages import RunAccepted

MAX_REJECTED = 5_000
"""How many rejected tasks are remembered, to recognize them when they are delivered again."""
FORGOTTEN_MS = 15_000.0
"""A look-up by intake no later than this after a run was begun or ended may have missed it."""


class KnownRuns:
    """The known runs of one partition in one tenure."""

    def __init__(self, context: TenureContext) -> None:
        self._store = context.services.store
        self._runs = context.runs
        self._tenure = context.tenure
        self._position = context.position
        self._looked_up: dict[str, Run | None] = {}
        """What Postgres has of the tasks of one message, which were looked up together."""
        self._rejected: OrderedDict[str, float] = OrderedDict()
        """When the tasks of rejected runs were stored: the same key may come again with a new task."""

    async def look_up(self, events: Sequence[RunAccepted]) -> None:
        """Look up together those tasks of a message that `begun_by` would look up one by one. Does
        nothing while Postgres is away."""
        asked = [
            event.run_id
            for event in events
            if self._runs.get(event.run_id) is None and self._may_be_old(event)
        ]
        if len(asked) < 2:
            return
        try:
            found = await self._store.known(asked)
        except AWAY:
            return
        self._looked_up = {run_id: found.get(run_id) for run_id in asked}

    def forget_looked_up(self) -> None:
        """Forget what was looked up for a message that is done."""
        self._looked_up.clear()

    async def begun_by(self, event: RunAccepted) -> Run | None:
        """Return the run that this task has already begun, if any."""
        run_id = event.run_id
        known = self._runs.get(run_id)
        if known is not None and await self._was_deleted(event, known):
            self._runs.forget(run_id)
            return None
        if known is None and run_id in self._looked_up:
            known = self._looked_up.pop(run_id)
        elif known is None and self._may_be_old(event):
            known = (await self._store.known([run_id])).get(run_id)
        if known is not None and known.status == RUN_REJECTED and self._is_new(event, known):
            self._runs.forget(run_id)
            return None
        return known

    async def _was_deleted(self, event: RunAccepted, run: Run) -> bool:
        """Tell whether an ended run that is in memory was deleted from Postgres, by retention or on
        request: its key then begins another run. Intake has looked for it after its end, in vain."""
        ended_at_ms, checked_at_ms = run.finished_at_ms, event.checked_at_ms
        if ended_at_ms is None or checked_at_ms is None or checked_at_ms <= ended_at_ms:
            return False
        if run.status == RUN_REJECTED or self._tenure.unwritten.of(run.run_id):
            return False
        return not await self._store.known([run.run_id])

    def _is_new(self, event: RunAccepted, rejected: Run) -> bool:
        """Tell whether a task whose run was rejected is a new one, not the same delivered again."""
        if event.task_ack is None:
            return True
        stored_at_ms = stored_at_ms_of(event.task_ack)
        before = self._rejected.get(event.run_id)
        if before is not None:
            return before != stored_at_ms
        return rejected.finished_at_ms is None or stored_at_ms > rejected.finished_at_ms

    def _may_be_old(self, event: RunAccepted) -> bool:
        """Tell whether a run that is not in memory may be in Postgres: its task was stored before
        we began to read the log, and a restored server may deliver it as if it were new; or it was
        stored before a run left the memory, and its acceptance may be posted again, because a server
        that crashed lost it; or intake looked it up before such a run was surely written. Other
        tasks are new; sub-runs come without a task."""
        if event.task_ack is None:
            return True
        checked_at_ms = event.checked_at_ms
        if checked_at_ms is not None and checked_at_ms < self._runs.forgotten_ms + FORGOTTEN_MS:
            return True
        stored_at_ms = stored_at_ms_of(event.task_ack)
        return stored_at_ms <= max(self._position.attached_at_ms, self._runs.forgotten_ms)

    def rejected(self, event: RunAccepted) -> None:
        """Remember the task of a run that was rejected."""
        if event.task_ack is None:
            return
        self._rejected[event.run_id] = stored_at_ms_of(event.task_ack)
        if len(self._rejected) > MAX_REJECTED:
            self._rejected.popitem(last=False)
