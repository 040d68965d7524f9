"""What workers report of attempts, before it counts: it must come from who was handed the attempt. The
dispatcher hears of each end, so that what it has out is told from what has ended.
"""

from hocket.coordinator.core.run.constructs.result_checks import may_tell
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.schemas import ids
from hocket.schemas.messages import AttemptFinished, AttemptReturned, RunEvent


class AttemptReports:
    """Those of one partition."""

    def __init__(self, services: SharedServices) -> None:
        self._dispatcher = services.dispatcher
        self._capabilities = services.capabilities

    def believes(self, event: RunEvent, run: Run | None) -> bool:
        """Tell whether an event counts, where it reports of an attempt of `run` (None: not here yet);
        others do. An end that counts is told to the dispatcher."""
        if isinstance(event, AttemptFinished):
            return self._has_ended(event, run)
        if isinstance(event, AttemptReturned) and run is not None:
            return may_tell(run, event, self._capabilities)
        return True

    def _has_ended(self, event: AttemptFinished, run: Run | None) -> bool:
        attempt_id = ids.attempt_id(event.run_id, event.step, event.attempt)
        if (
            run is not None
            and not self._dispatcher.has_sent(event, attempt_id)
            and not may_tell(run, event, self._capabilities)
        ):
            return False
        self._dispatcher.finished(event, attempt_id)
        return True
