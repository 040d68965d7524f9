"""Carries out the commands of the coordinator's rules on the play's clock."""

from collections.abc import Callable, Mapping
from typing import Any

from hocket.coordinator.core.run.commands import (
    CancelAttempt,
    CancelSubRun,
    FillCache,
    LookUpCache,
    RecordAttempt,
    ReleaseCache,
    StartSubRun,
    WaitForFlow,
    Wake,
)
from hocket.coordinator.core.run.ends.critical_path import timing_of
from hocket.coordinator.core.run.state.messages import (
    Command,
    Dispatch,
    EndRun,
    TellSpending,
)
from hocket.coordinator.core.run.state.run import RUN_DEGRADED, Run
from hocket.coordinator.partition.runs.end_publisher import end_result, result_for
from hocket.schemas.messages import (
    CancelRequested,
    RunEvent,
    Spend,
    TimerFired,
)
from hocket.testing.attempts import Attempts
from hocket.testing.stand_ins.cache import PlayedCache
from hocket.testing.stand_ins.clock import PlayLoop
from hocket.testing.stand_ins.flow import PlayedFlow
from hocket.testing.trace import Trace

Happens = Callable[[RunEvent], None]


class Commands:
    """Carries out commands. Their consequences are passed to `happens`, and ends of runs to `ended`."""

    def __init__(
        self,
        loop: PlayLoop,
        attempts: Attempts,
        trace: Trace,
        happens: Happens,
        ended: Callable[[Run], None],
    ) -> None:
        self._loop = loop
        self._attempts = attempts
        self._trace = trace
        self._happens = happens
        self._ended = ended
        self._cache = PlayedCache()
        self._flow = PlayedFlow(loop, happens)
        self._doing: Mapping[type, Callable[[Run, Any], None]] = {
            Dispatch: self._dispatch,
            CancelAttempt: self._cancel,
            StartSubRun: lambda _, command: happens(command.accepted),
            CancelSubRun: self._cancel_run,
            Wake: self._wake,
            RecordAttempt: self._record,
            LookUpCache: self._ask_cache,
            FillCache: self._ask_cache,
            ReleaseCache: self._ask_cache,
            WaitForFlow: lambda run, command: self._flow.enter(run, command.places),
            EndRun: self._end,
            TellSpending: self._tell_spending,
        }

    def carry_out(self, run: Run, command: Command) -> None:
        """Carry out a command of a run. Progress reports and advance notices to gateways are dropped."""
        doing = self._doing.get(type(command))
        if doing is not None:
            doing(run, command)

    def _dispatch(self, run: Run, command: Dispatch) -> None:
        self._trace.note(run.run_id, command.step, f"attempt {command.attempt} dispatched")
        self._attempts.begin(command)

    def _cancel(self, _run: Run, command: CancelAttempt) -> None:
        self._attempts.cancel(command.run_id, command.step, command.attempt)

    def _cancel_run(self, _run: Run, command: CancelSubRun) -> None:
        reason = command.reason
        self._happens(CancelRequested(run_id=command.run_id, reason=reason, by="its parent"))

    def _wake(self, _run: Run, command: Wake) -> None:
        in_s = max(0.0, command.at_ms - self._loop.now_ms()) / 1000
        event = TimerFired(run_id=command.run_id, due_at_ms=command.at_ms)
        self._loop.call_later(in_s, self._happens, event)

    def _record(self, run: Run, command: RecordAttempt) -> None:
        if command.outcome == "late":
            self._trace.note(run.run_id, command.key, f"attempt {command.attempt} came late")

    def _ask_cache(self, _run: Run, command: LookUpCache | FillCache | ReleaseCache) -> None:
        for answer in self._cache.answers(command, self._loop.now_ms()):
            self._happens(answer)

    def _tell_spending(self, run: Run, _command: TellSpending) -> None:
        if run.parent is not None:
            self._happens(end_result(run, run.parent, retold=True))

    def _end(self, run: Run, _command: EndRun) -> None:
        reason = "" if run.error is None else f": {run.error.code}"
        self._trace.note(run.run_id, "", f"ended {run.status}{reason}")
        self._flow.leave(run.run_id)
        if run.parent is not None:
            result = result_for(
                run.parent,
                output=run.output.value,
                error=run.error,
                spend=Spend(cost_usd=run.spent_usd),
                timing=timing_of(run.critical_path),
                degraded=run.status == RUN_DEGRADED,
            )
            self._happens(result)
        self._ended(run)
