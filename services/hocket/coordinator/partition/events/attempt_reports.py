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

    def must_be_checked(self, event: RunEvent) -> bool:
        """Tell whether anybody may have made an event up, so that it may not load a run."""
        return self._capabilities is not None and isinstance(
            event, AttemptFinished | AttemptReturned
        )

    def may_count(self, event: RunEvent, row: Run) -> bool:
        """Tell whether an event may count, as far as that can be known without the run's steps."""
        assert isinstance(event, AttemptFinished | AttemptReturned), event
        if event.capability is None:
            return not row.has_ended
        return may_tell(row, event, self._capabilities)

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
