"""Executes what the rules ask for: steps to the gate, timers, cancellations, the step cache,
sub-runs, and messages to callers and gateways.

The ends of runs, and steps with effects outside, wait for their commit: `decision_recorder.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import structlog

from hocket.coordinator.core.run.commands import (
    Announce,
    CancelAttempt,
    CancelSubRun,
    ExpectPrompt,
    FillCache,
    LookUpCache,
    ReleaseCache,
    StartSubRun,
    Wake,
)
from hocket.coordinator.core.run.faults import reason_of, unsendable
from hocket.coordinator.core.run.state.messages import Command, Dispatch
from hocket.coordinator.partition.runs.end_publisher import result_for
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.partition.wake_ups import WakeUps
from hocket.schemas import ids
from hocket.schemas.errors import HocketError, PayloadTooLarge
from hocket.schemas.messages import CancelRequested, encoded

log = structlog.get_logger(__name__)


class CommandExecutor:
    """Executes the commands of one partition in one tenure."""

    def __init__(self, context: TenureContext, wake_ups: WakeUps) -> None:
        services, demand = context.services, context.demand
        self._bus = services.bus
        self._tenure = context.tenure
        self._position = context.position
        self._notifier = context.notifier
        self._posts = context.posts
        self._wake_ups = wake_ups
        self._dispatcher = dispatcher = services.dispatcher
        cache = services.step_cache
        self._rules: Mapping[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch,
            Wake: self._wake,
            CancelAttempt: dispatcher.cancel,
            Announce: self._announce,
            ExpectPrompt: lambda command: demand.prompt(command.expected),
            LookUpCache: cache.look_up,
            FillCache: cache.fill,
            ReleaseCache: cache.release,
            StartSubRun: self._start_sub_run,
            CancelSubRun: self._cancel_sub_run,
        }

    def execute(self, command: Command) -> None:
        """Execute a command, unless the partition was lost while an event was being applied: then
        its new owner decides."""
        if not self._tenure.over:
            self._rules[type(command)](command)

    def execute_surely(self, command: Command) -> None:
        """Execute a command of a run that has ended, logging any error: a worker that is not told
        of a cancellation finds out by its time limit."""
        try:
            self.execute(command)
        except Exception:
            log.exception("command_failed", command=type(command).__name__)

    def _dispatch(self, command: Dispatch) -> None:
        """Hand a step out. If its event was in the log before this owner read it, the former owner
        may have published the same step without having written that: the worker that has it must be
        told of its cancellation even while it is held back here."""
        if command.dispatched_at_ms <= self._position.attached_at_ms:
            command.again = True
        self._dispatcher.dispatch(command)

    def _wake(self, command: Wake) -> None:
        self._wake_ups.arm(command.run_id, command.at_ms)

    def _announce(self, command: Announce) -> None:
        """Tell a caller of its run's progress; log and drop what cannot be sent."""
        try:
            self._bus.publish_nowait(command.reply_to, encoded(command.change))
        except (HocketError, ValueError) as error:
            log.warning("progress_not_told", run_id=command.change.run_id, reason=reason_of(error))

    def _start_sub_run(self, command: StartSubRun) -> None:
        accepted = command.accepted
        parent = accepted.parent
        assert parent is not None, accepted.run_id
        msg_id = ids.accepted_id(accepted.run_id, parent.dispatched_at_ms)
        try:
            self._posts.post_to_run(accepted, msg_id)
        except (PayloadTooLarge, ValueError) as error:
            self._notifier.tell_parent(parent, result_for(parent, error=unsendable(error)))

    def _cancel_sub_run(self, command: CancelSubRun) -> None:
        cancel = CancelRequested(run_id=command.run_id, reason=command.reason, by="parent run")
        self._posts.post_to_run(cancel)
