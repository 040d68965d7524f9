"""Works off an event: each piece of work goes to the rule of its construct, until nothing is left
or the run has ended. Then the run is held to its bounds, and its deadline resumes if nobody is
waited for."""

from hocket.coordinator.core.run.constructs.containers.fallbacks import failing, fallback_settled
from hocket.coordinator.core.run.constructs.containers.loops import round_settled
from hocket.coordinator.core.run.constructs.containers.maps import item_settled
from hocket.coordinator.core.run.constructs.containers.races import branch_settled
from hocket.coordinator.core.run.constructs.deadline_actions import watch_again
from hocket.coordinator.core.run.constructs.graph import activate, node_settled
from hocket.coordinator.core.run.constructs.start import start
from hocket.coordinator.core.run.constructs.waits import call_settled, resume_deadline
from hocket.coordinator.core.run.ends.ending import fail_run
from hocket.coordinator.core.run.run_size import (
    FREE_EVENT_OPERATIONS,
    MAX_RUN_OPERATIONS,
    MAX_RUN_STATE_BYTES,
    ExpressionsUsedUp,
    RunComputesTooMuch,
    RunTooLarge,
)
from hocket.coordinator.core.run.state.run import (
    BRANCH,
    CALL,
    ITEM,
    NODE,
    ROUND,
    RUNNING,
    Step,
    takes_part,
)
from hocket.coordinator.core.run.transition import (
    ACTIVATE,
    FAILING,
    SETTLED,
    START_FAST,
    Transition,
)
from hocket.coordinator.core.run.withdrawn import without_withdrawn
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.templates.budget import MAX_TOGETHER_OPERATIONS


def work_off(t: Transition) -> None:
    """Do all the work that an event causes."""
    run, todo, account = t.run, t.todo, t.account
    resumed = False
    while todo and run.status == RUNNING:
        # the deadline moves before the next step begins
        resumed |= run.paused_at_ms is not None and resume_deadline(t)
        _work_on(t, *todo.popleft())
        if account.operations > FREE_EVENT_OPERATIONS or run.size_bytes > MAX_RUN_STATE_BYTES:
            _check_bounds(t)
    if run.size_bytes > MAX_RUN_STATE_BYTES:  # also if the event only stored something
        _check_bounds(t)
    operations = t.operations
    if operations != run.operations:
        run.operations = operations
        t.run_changed = True
    resumed |= run.paused_at_ms is not None and resume_deadline(t)
    if resumed:
        watch_again(t)
    if run.reuse is not None:
        t.commands = without_withdrawn(t.commands)


def _work_on(t: Transition, kind: int, step: Step, error: ErrorInfo | None) -> None:
    if kind == SETTLED:
        if step.link == NODE:
            node_settled(t, step)
        else:
            _child_settled(t, step)
    elif kind == ACTIVATE:
        activate(t, step)
    elif kind != FAILING:
        start(t, step, fast=kind == START_FAST)
    else:
        t.failing.discard(step.key)
        if t.run.is_live(step):
            assert error is not None, step.key
            failing(t, step, error)


def _child_settled(t: Transition, child: Step) -> None:
    """Advance the container of an item, round, branch or fallback that ended, or the caller of a
    call."""
    parent = child.parent
    assert parent is not None, child.key
    if child.link == CALL:
        call_settled(t, parent, child)
        return
    if not takes_part(parent, child):
        return
    if child.link == ITEM:
        item_settled(t, parent, child)
    elif child.link == ROUND:
        round_settled(t, parent, child)
    elif child.link == BRANCH:
        branch_settled(t, parent, child)
    else:
        fallback_settled(t, parent, child)


def _check_bounds(t: Transition) -> None:
    """End a run that computes or holds too much."""
    run = t.run
    if t.account.is_used_up and not run.has_ended:
        fail_run(t, RunComputesTooMuch(limit=MAX_TOGETHER_OPERATIONS).info())
    if t.operations > MAX_RUN_OPERATIONS and not run.has_ended:
        fail_run(t, ExpressionsUsedUp(limit=MAX_RUN_OPERATIONS).info())
    if run.size_bytes > MAX_RUN_STATE_BYTES and not run.has_ended:
        error = RunTooLarge(size_bytes=run.size_bytes, limit_bytes=MAX_RUN_STATE_BYTES)
        fail_run(t, error.info())
