"""`decide`: one event of the log in, the new run and the shell's commands out.

The table of what an event does to a run; an event for a run that has ended, or that this partition
does not know, changes nothing.
"""

from dataclasses import dataclass
from math import inf

from hocket.coordinator.core.graph.containers import child_settled, failing, start
from hocket.coordinator.core.graph.scopes import activate, node_settled, open_scope
from hocket.coordinator.core.reuse.caching import ask_of
from hocket.coordinator.core.reuse.repeats import Reuse
from hocket.coordinator.core.run.attempts import (
    cache_answered,
    child_of,
    finished,
    may_tell,
    redispatch,
    woken,
)
from hocket.coordinator.core.run.commands import (
    CancelAttempt,
    CancelSubRun,
    Command,
    Dispatch,
    EndRun,
    RecordAttempt,
    ReleaseCache,
    StartSubRun,
)
from hocket.coordinator.core.run.ending import (
    deadline_has_come,
    end_run,
    expire_run,
    fail_run,
    finished_of,
)
from hocket.coordinator.core.run.feasibility import is_watched
from hocket.coordinator.core.run.run_size import (
    MAX_RUN_OPERATIONS,
    MAX_RUN_STATE_BYTES,
    ExpressionsUsedUp,
    RunComputesTooMuch,
    RunTooLarge,
    size_of,
)
from hocket.coordinator.core.run.state import ParentRelation, Role, Run, RunStatus, Step, StepState
from hocket.coordinator.core.run.transition import (
    Activate,
    Failing,
    RunTransition,
    Settled,
    Start,
    begin,
)
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.deadlines import DurationForecast
from hocket.coordinator.core.time.timestamps import nearest, not_before
from hocket.coordinator.core.waiting.deadline_actions import (
    give_up,
    turn_came,
    waited_in_vain,
    watch_again,
)
from hocket.coordinator.core.waiting.waits import resume_deadline, signal_received, wait_timed_out
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError
from hocket.schemas.messages import (
    AttemptFinished,
    CacheAnswered,
    CancelRequested,
    RunAccepted,
    RunEvent,
    SignalReceived,
    TimerFired,
)
from hocket.schemas.pipeline.plan import Plan, complete_input
from hocket.schemas.templates.budget import MAX_TOGETHER_OPERATIONS


class RunCancelled(HocketError):
    """The run was cancelled by {by}: {reason}."""

    code = "cancelled"
    error_class = ErrorClass.CANCELLED


@dataclass(frozen=True, slots=True)
class Decision:
    """What an event did: the new run, what the shell must do, and which rows changed."""

    run: Run
    commands: tuple[Command, ...] = ()
    changed: tuple[str, ...] = ()
    run_changed: bool = False


def accept(
    event: RunAccepted,
    *,
    partition: int,
    now_ms: float,
    plan: Plan,
    outlook: DurationForecast,
    epoch: int,
    reuse: Reuse | None = None,
    capabilities: Capabilities | None = None,
) -> Decision:
    """Return the first decision of a run that was admitted; `reuse` is what it takes over from the
    run that it repeats."""
    completed = complete_input(plan, event.input)
    if completed is not event.input:
        event = event.model_copy(update={"input": completed})
    run = _run_of(event, partition, now_ms, reuse)
    if run.parent is not None and reuse is None:
        run = replace(run, origin=None)  # it had no end yet, and what it comes to is not taken over
    u = begin(
        run, plan=plan, outlook=outlook, now_ms=now_ms, epoch=epoch, capabilities=capabilities
    )
    u.run_changed = True
    u.arm(run.deadline_at_ms)
    open_scope(u, "")
    return _settle_all(u)


def reject(event: RunAccepted, *, partition: int, now_ms: float) -> Decision:
    """Return the only decision of a run that was rejected: it has ended."""
    assert event.rejected is not None, event.run_id
    run = replace(
        _run_of(event, partition, now_ms, None),
        status=RunStatus.REJECTED,
        error=event.rejected,
        finished_at_ms=not_before(now_ms),
    )
    return Decision(run, (EndRun(finished_of(run)),), run_changed=True)


def refuse(event: RunAccepted, error: ErrorInfo, *, partition: int, now_ms: float) -> Decision:
    """Return the only decision of a run that could not begin: it has failed."""
    run = replace(
        _run_of(event, partition, now_ms, None),
        status=RunStatus.FAILED,
        error=error,
        finished_at_ms=not_before(now_ms),
    )
    return Decision(run, (EndRun(finished_of(run)),), run_changed=True)


def abort(
    run: Run, error: ErrorInfo, *, now_ms: float, plan: Plan, outlook: DurationForecast, epoch: int
) -> Decision:
    """End a run that cannot go on."""
    u = begin(run, plan=plan, outlook=outlook, now_ms=now_ms, epoch=epoch)
    end_run(u, RunStatus.FAILED, error=error)
    return _settle_all(u)


def _run_of(event: RunAccepted, partition: int, now_ms: float, reuse: Reuse | None) -> Run:
    return Run(
        run_id=event.run_id,
        tenant=event.tenant,
        pipeline=event.pipeline,
        version=event.version,
        partition=partition,
        priority=event.priority,
        input=event.input,
        accepted_at_ms=not_before(now_ms),
        deadline_at_ms=nearest(event.deadline_at_ms),
        budget_usd=event.budget_usd,
        idempotency_key=event.idempotency_key,
        reply_to=event.reply_to,
        progress=event.progress,
        traceparent=event.traceparent,
        parent=event.parent,
        origin=event.origin,
        labels=event.labels,
        reuse=reuse,
        probe=event.probe,
        size_bytes=size_of(event.input),
    )


def decide(
    run: Run,
    event: RunEvent,
    *,
    now_ms: float,
    plan: Plan,
    outlook: DurationForecast,
    epoch: int,
    capabilities: Capabilities | None = None,
) -> Decision:
    """Return what an event does to a run that was accepted before. With `capabilities` a result counts
    only where it has that of its attempt."""
    if isinstance(event, AttemptFinished) and not may_tell(run, event, capabilities):
        return Decision(run)
    if run.ended:
        return Decision(run, _late(run, event, now_ms))
    if isinstance(event, RunAccepted):
        return Decision(run)
    if isinstance(event, TimerFired):
        now_ms = max(now_ms, event.due_at_ms)
    u = begin(
        run, plan=plan, outlook=outlook, now_ms=now_ms, epoch=epoch, capabilities=capabilities
    )
    if isinstance(event, AttemptFinished):
        rule = turn_came if waited_in_vain(event) else finished
        rule(u, event)
    elif isinstance(event, SignalReceived):
        signal_received(u, event)
    elif isinstance(event, CancelRequested):
        error = RunCancelled(by=event.by or "somebody", reason=event.reason or "no reason given")
        end_run(u, RunStatus.CANCELLED, error=error.info())
    elif isinstance(event, CacheAnswered):
        cache_answered(u, event)
    else:
        _time_passed(u)
    return _settle_all(u)


def resume(
    run: Run,
    *,
    now_ms: float,
    plan: Plan,
    outlook: DurationForecast,
    epoch: int,
    capabilities: Capabilities | None = None,
) -> Decision:
    """Return what a new owner must do for a run in flight: hand its attempts out again (the same
    messages; whoever has them already drops the repeat) and ask for its next wake-up."""
    u = begin(
        run, plan=plan, outlook=outlook, now_ms=now_ms, epoch=epoch, capabilities=capabilities
    )
    for key in u.live_keys():
        step: Step = u.steps[key]
        if step.state is StepState.LOOKING_UP:
            u.commands.append(ask_of(u, step))
        if step.state is not StepState.DISPATCHED:
            continue
        if step.role is Role.SUBRUN:
            u.commands.append(StartSubRun(child_of(u, step)))
        else:
            u.commands.append(redispatch(u, step))
    u.run = replace(u.run, armed_at_ms=None)
    u.arm(_next_wake(u))
    return Decision(u.close(), tuple(u.commands))


def _settle_all(u: RunTransition) -> Decision:
    while u.todo and not u.run.ended:
        work = u.todo.popleft()
        if isinstance(work, Settled):
            step: Step = u.steps[work.key]
            rule = node_settled if step.link is ParentRelation.NODE else child_settled
            rule(u, work)
        elif isinstance(work, Activate):
            activate(u, work)
        elif isinstance(work, Start):
            _start_if_wanted(u, work)
        else:
            _fail_if_live(u, work)
        _check_bounds(u)
    _check_bounds(u)  # also what an event only keeps, as results that came early
    if u.operations != u.run.operations:
        u.change(operations=u.operations)
    if resume_deadline(u) and is_watched(u):
        watch_again(u)
    commands = u.commands if u.run.reuse is None else _without_withdrawn(u.commands)
    return Decision(u.close(), tuple(commands), tuple(u.changed), u.run_changed)


def _check_bounds(u: RunTransition) -> None:
    """End a run that computes or holds too much."""
    if u.account.is_used_up and not u.run.ended:
        fail_run(u, RunComputesTooMuch(limit=MAX_TOGETHER_OPERATIONS).info())
    if u.operations > MAX_RUN_OPERATIONS and not u.run.ended:
        fail_run(u, ExpressionsUsedUp(limit=MAX_RUN_OPERATIONS).info())
    if u.size_bytes > MAX_RUN_STATE_BYTES and not u.run.ended:
        error = RunTooLarge(size_bytes=u.size_bytes, limit_bytes=MAX_RUN_STATE_BYTES)
        fail_run(u, error.info())


def _without_withdrawn(commands: list[Command]) -> list[Command]:
    """Drop what was handed out and cancelled within one event: a race whose winner is taken over
    pays for no loser."""
    made: set[tuple[str, int] | str] = set()
    withdrawn: set[tuple[str, int] | str] = set()
    for command in commands:
        if isinstance(command, Dispatch):
            made.add((command.request.step, command.request.attempt))
        elif isinstance(command, StartSubRun):
            made.add(command.accepted.run_id)
        elif isinstance(command, CancelAttempt) and (command.step, command.attempt) in made:
            withdrawn.add((command.step, command.attempt))
        elif isinstance(command, CancelSubRun) and command.run_id in made:
            withdrawn.add(command.run_id)
    return [c for c in commands if _attempt_of(c) not in withdrawn] if withdrawn else commands


def _attempt_of(command: Command) -> tuple[str, int] | str | None:
    if isinstance(command, Dispatch):
        return command.request.step, command.request.attempt
    if isinstance(command, CancelAttempt):
        return command.step, command.attempt
    if isinstance(command, StartSubRun):
        return command.accepted.run_id
    return command.run_id if isinstance(command, CancelSubRun) else None


def _start_if_wanted(u: RunTransition, work: Start) -> None:
    """Start a step, unless its scope or container ended while it waited its turn."""
    if work.link is ParentRelation.NODE:
        wanted = work.parent in u.scopes
    else:
        wanted = u.steps[work.parent].state is StepState.OPEN
    if wanted:
        start(u, work)


def _fail_if_live(u: RunTransition, work: Failing) -> None:
    if work.key in u.live:
        failing(u, work)


def _time_passed(u: RunTransition) -> None:
    u.run = replace(u.run, armed_at_ms=None)
    if deadline_has_come(u):
        expire_run(u)
        return
    for key in u.take_due():
        step: Step = u.steps[key]
        if u.run.ended:
            return
        if key not in u.live:
            continue  # it was withdrawn with what it stands in, whose time came at this moment too
        if step.give_up_at_ms is not None and step.give_up_at_ms <= u.now_ms:
            if u.run.paused_at_ms is None:
                give_up(u, step)
                continue
            # the deadline stands still: the node is watched again when it does not
            step = replace(step, give_up_at_ms=None)
            if step.wake_at_ms is None or step.wake_at_ms > u.now_ms:
                u.put(step)
                continue
            u.note(step)
        if step.state is StepState.WAITING:
            wait_timed_out(u, step)
        else:
            woken(u, step)
    u.arm(_next_wake(u))


def _next_wake(u: RunTransition) -> float:
    deadline = u.run.deadline_at_ms if u.run.paused_at_ms is None else inf
    return min(deadline, u.next_due())


def _late(run: Run, event: RunEvent, now_ms: float) -> tuple[Command, ...]:
    """Keep the result of an attempt that nobody waits for any more; give a turn to compute back."""
    if isinstance(event, CacheAnswered) and not event.hit:
        return (ReleaseCache(event.key, event.run_id, event.step),)
    if not isinstance(event, AttemptFinished) or event.step not in run.steps:
        return ()
    if waited_in_vain(event):
        return ()
    if event.error is not None and event.error.error_class is ErrorClass.CANCELLED:
        return ()
    return (
        RecordAttempt(
            key=event.step,
            attempt=event.attempt,
            outcome="late",
            error=event.error,
            dispatched_at_ms=run.steps[event.step].dispatched_at_ms,
            started_at_ms=event.started_at_ms or None,
            finished_at_ms=now_ms,
            worker=event.worker,
        ),
    )
