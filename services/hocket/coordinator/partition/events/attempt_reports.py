"""Checks workers' reports of attempts before they count: a report must come from the worker that
was given the attempt. The dispatcher is told of each end, so that it knows which steps are still
out.
"""

from hocket.coordinator.core.run.constructs.result_checks import may_tell
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.schemas import ids
from hocket.schemas.messages import AttemptFinished, AttemptReturned, RunEvent


class AttemptReports:
    """Checks the reports for one partition."""

    def __init__(self, services: SharedServices) -> None:
        self._dispatcher = services.dispatcher
        self._capabilities = services.capabilities

    def believes(self, event: RunEvent, run: Run | None) -> bool:
        """Tell whether an event counts: a report about an attempt of `run` (None: not loaded yet)
        must be genuine, other events always count. The dispatcher is told of an end that counts."""
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
