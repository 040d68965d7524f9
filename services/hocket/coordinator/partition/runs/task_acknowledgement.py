"""When an accepted task is acknowledged: after the commit that holds its run, and never before. A
task whose coordinator dies earlier is delivered again."""

from collections.abc import Callable
from functools import partial

from hocket.coordinator.storage.tenure import Tenure
from hocket.schemas.messages import RunAccepted


class TaskAcknowledgement:
    """Acknowledges the tasks of one partition's runs, in one tenure; `done` acknowledges a task."""

    def __init__(self, done: Callable[[str], None], tenure: Tenure) -> None:
        self._done = done
        self._tenure = tenure

    def after_commit(self, event: RunAccepted) -> None:
        """Acknowledge a task with the commit that holds its run. To be called only once the run is
        decided, because an earlier commit must not remove the task. Sub-runs come without a task."""
        if event.task_ack is not None:
            self._tenure.after_commit(partial(self._done, event.task_ack))
