"""The attempts of a play: from a step's message to its result, run by the worker's own parts."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.schemas import ids
from hocket.schemas.messages import AttemptFinished
from hocket.schemas.structs.steps import RequestedStep, read_step
from hocket.testing.faults import Fault, fault_of, handled
from hocket.testing.functions import Functions
from hocket.testing.handling import begun, context_of, within
from hocket.testing.results import result_of
from hocket.testing.stand_ins.answers import PlayedModels
from hocket.testing.stand_ins.journals import PlayedJournals
from hocket.workers.errors import AttemptTimeout, DeadlinePassed
from hocket.workers.runtime.execution.attempt import Attempt
from hocket.workers.runtime.journal.suspending import Suspension
from hocket.workers.runtime.transport.consumers import ACK_WAIT_S


@dataclass(frozen=True, slots=True)
class Told:
    """Callbacks of attempts: for their results, for a worker that died, and for a fault of the test."""

    finished: Callable[[AttemptFinished], None]
    died: Callable[[RequestedStep], None]
    broken: Callable[[BaseException], None]


class Attempts:
    """Runs dispatched steps. A cancelled attempt ends without a result, because nobody waits for one."""

    def __init__(
        self,
        functions: Functions,
        models: PlayedModels,
        faults: tuple[Fault, ...],
        told: Told,
    ) -> None:
        self._functions = functions
        self._models = models
        self._faults = faults
        self._told = told
        self._journals = PlayedJournals(self._stored)
        self._left: dict[str, int] = {}
        """How many more entries an attempt's journal gets before its worker dies."""
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._mortal: dict[str, Attempt] = {}
        """The attempts whose worker is to die."""

    def begin(self, dispatch: Dispatch) -> None:
        """Run an attempt."""
        body = dispatch.body(dispatch.slack_ms, 0.0)
        step = read_step(body)
        task = asyncio.get_running_loop().create_task(self._run(step, body))
        self._tasks[_id(step)] = task

    def cancel(self, run_id: str, step: str, attempt: int) -> None:
        """End an attempt whose result nobody waits for."""
        task = self._tasks.pop(ids.attempt_id(run_id, step, attempt), None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all attempts that are still running."""
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _run(self, step: RequestedStep, body: bytes) -> None:
        fault = fault_of(self._faults, step)
        try:
            if fault is not None and fault.dies_after is not None:
                self._left[_id(step)] = fault.dies_after
                died = await self._attempt(step, None, deliveries=1)
                if died:
                    self._left.pop(_id(step))
                    self._told.died(step)
                    await asyncio.sleep(ACK_WAIT_S)
                    await self._attempt(read_step(body), None, deliveries=2)
            else:
                await self._attempt(step, fault, deliveries=1)
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                self._told.broken(error)
            raise

    async def _attempt(self, step: RequestedStep, fault: Fault | None, *, deliveries: int) -> bool:
        """Run one delivery of an attempt and report its result; return True if its worker died."""
        attempt = begun(step, deliveries)
        if _id(step) in self._left:
            self._mortal[_id(step)] = attempt

        def suspend(suspension: Suspension) -> None:
            if attempt.suspend(suspension):
                self._tasks[f"{_id(step)} handler"].cancel()

        context = context_of(attempt, self._models, self._journals, suspend)
        handler = self._functions.of(step)
        timeout_ms = max(0.0, context.deadline_at_ms - attempt.started_at_ms)
        output: Any = None
        error: BaseException | None = None
        if attempt.started_at_ms >= attempt.latest_end_ms:
            late_ms = round(attempt.started_at_ms - attempt.latest_end_ms)
            error = DeadlinePassed(late_ms=late_ms)
        else:
            doing = asyncio.get_running_loop().create_task(handled(handler, context, fault))
            self._tasks[f"{_id(step)} handler"] = doing
            try:
                if self._left.get(_id(step)) == 0:
                    doing.cancel()
                output, error = await within(doing, timeout_ms)
                attempt.stopped = error if isinstance(error, AttemptTimeout) else None
                attempt.conclude()
            finally:
                doing.cancel()
        if _id(step) in self._left and self._left[_id(step)] <= 0:
            return True
        if attempt.suspension is not None:
            output, error = None, None
        self._told.finished(result_of(attempt, context, output, error))
        return False

    def _stored(self, step: RequestedStep, entries: int) -> None:
        """Make the worker of an attempt die at the entry that the test has chosen."""
        left = self._left.get(_id(step))
        if left is None or not entries:
            return
        self._left[_id(step)] = max(0, left - entries)
        if left <= entries:
            self._mortal[_id(step)].let_go = True  # the dead do nothing more
            self._tasks[f"{_id(step)} handler"].cancel()


def _id(step: RequestedStep) -> str:
    return ids.attempt_id(step.run_id, step.step, step.attempt)
