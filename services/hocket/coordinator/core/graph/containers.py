"""Steps that hold other steps: map, loop, race, graph, and the chain of fallbacks.

A node unfolds from the outside in: map, then loop, then what its type says. `start` opens the
outermost layer that a link still has to; `child_settled` moves a container when a child ended.
"""

from typing import Any

from hocket.coordinator.core.graph.expansion import check_items, count_step
from hocket.coordinator.core.graph.layers import first_role
from hocket.coordinator.core.graph.scopes import open_scope
from hocket.coordinator.core.reuse.caching import released
from hocket.coordinator.core.reuse.repeats import edited_input
from hocket.coordinator.core.run.attempts import begin_leaf
from hocket.coordinator.core.run.ending import cancel_below
from hocket.coordinator.core.run.feasibility import TooSlow, give_up_at_ms, is_watched
from hocket.coordinator.core.run.retries import matches
from hocket.coordinator.core.run.run_tree import check_map
from hocket.coordinator.core.run.state import (
    ChildProgress,
    ParentRelation,
    Role,
    Step,
    StepState,
    new_step,
)
from hocket.coordinator.core.run.transition import Failing, RunTransition, Settled, Start
from hocket.coordinator.core.structures.frozen import replace
from hocket.coordinator.core.time.deadlines import deadline_of, slack_of
from hocket.coordinator.core.time.prompt_prefixes import expect_prompt
from hocket.coordinator.core.time.timestamps import nearest
from hocket.coordinator.core.waiting.waits import begin_wait
from hocket.schemas.errors import ErrorClass, ErrorInfo, HocketError, InvalidInput
from hocket.schemas.pipeline.plan import NodePlan
from hocket.schemas.pipeline.spec import RaceNode

MAX_STEPS = 200_000
"""Steps of one run; a graph that unfolds beyond it fails rather than exhausting memory."""
ITEM_OPERATIONS = 100
"""What it counts to put an item of a map on the way, before it begins (`templates/budget.py`)."""


class TooManySteps(HocketError):
    """The run would unfold into more than {limit} steps. Bound its maps and loops."""

    code = "too_many_steps"
    error_class = ErrorClass.INVALID


class LoopExhausted(HocketError):
    """The loop of `{node}` ran {rounds} rounds and `until` never held. Raise `max_rounds`, or set
    `on_exhausted: accept`."""

    code = "loop_exhausted"


class RaceLost(HocketError):
    """No branch of `{node}` gave a valid output. Look at the errors of its branches."""

    code = "race_lost"


def start(u: RunTransition, work: Start) -> None:
    """Begin a step at the outermost layer that its link leaves open."""
    role = first_role(work.plan, work.link)
    step = u.put(
        new_step(
            key=work.key,
            path=work.plan.path,
            type=work.plan.node.type,
            role=role,
            link=work.link,
            parent=work.parent,
            home=work.home,
            index=work.index,
            ready_at_ms=u.now_ms,
            state=StepState.OPEN,
            give_up_at_ms=_give_up_at_ms(u, work),
        )
    )
    if role is not Role.LEAF:
        step = _with_deadline(u, step)
    if work.plan.dependents:
        expect_prompt(u, step, work.plan)
    try:
        count_step(u, step)
        if len(u.steps) > MAX_STEPS:
            raise TooManySteps(limit=MAX_STEPS)
        if work.fast:
            _open_fast_first(u, step, work)
        elif role is Role.MAP:
            _open_map(u, step, work.plan)
        elif role is Role.LOOP:
            _start_round(u, u.put(step), work.plan, 1)
        else:
            _open_base(u, step, work)
    except HocketError as error:
        u.todo.append(Failing(step.key, error.info()))


def child_settled(u: RunTransition, work: Settled) -> None:
    """Move the container of an item, round, branch or fallback that ended."""
    child: Step = u.steps[work.key]
    parent: Step = u.steps[child.parent]
    if parent.state is not StepState.OPEN:
        return
    _CHILD_RULES[child.link](u, parent, child)


def failing(u: RunTransition, work: Failing) -> None:
    """Fail a step, unless its node has a fallback for the error."""
    step: Step = u.steps[work.key]
    if step.state in (StepState.SUCCEEDED, StepState.CANCELLED, StepState.SKIPPED):
        return
    if step.cache_key is not None:
        step = u.put(released(u, step))
    cancel_below(u, step.key, work.error.code)
    u.scopes.pop(step.key, None)
    u.tallies.pop(step.key, None)
    owns_fallbacks = step.link not in (ParentRelation.ITEM, ParentRelation.ROUND)
    if owns_fallbacks and _open_fallback(u, step, work.error, after=0):
        return
    u.settle(step.key, StepState.FAILED, error=work.error)


def open_fast(u: RunTransition, step: Step, plan: NodePlan, error: ErrorInfo) -> None:
    """Let the fast variant of a node serve in its place: a fallback like others, with the number 0."""
    assert plan.fast is not None, step.key
    _open_child(u, step, plan.fast, 0, error)


def _open_fast_first(u: RunTransition, step: Step, work: Start) -> None:
    """Let the fast variant serve from the start."""
    assert work.plan.fast is not None, step.key
    if work.plan.fast.input is None:
        step = replace(step, input=_input_of(u, step, work))
    open_fast(u, step, work.plan, TooSlow(node=work.plan.path).info())


def _give_up_at_ms(u: RunTransition, work: Start) -> float | None:
    if work.link is not ParentRelation.NODE or work.fast or not is_watched(u):
        return None
    return give_up_at_ms(u, work.plan, u.expected(work.home, work.plan.path))


# ---- layers ---------------------------------------------------------------------------------


def _with_deadline(u: RunTransition, step: Step) -> Step:
    """Give a container the deadline and slack that a leaf gets when it is dispatched."""
    expectation, deadline = u.expectation(step), u.run.deadline_at_ms
    return replace(
        step,
        deadline_at_ms=deadline_of(expectation, deadline),
        slack_ms=slack_of(expectation, deadline, u.now_ms),
    )


def _open_base(u: RunTransition, step: Step, work: Start) -> None:
    plan = work.plan
    given = edited_input(u, step.key)
    step = replace(step, input=_input_of(u, step, work) if given is None else given)
    if step.role is Role.LEAF or step.role is Role.SUBRUN:
        begin_leaf(u, step)
    elif step.role is Role.WAIT:
        begin_wait(u, step)
    elif step.role is Role.GRAPH:
        _timed(u, step, plan)
        open_scope(u, step.key)
    else:
        _timed(u, step, plan)
        u.tallies[step.key] = ChildProgress(started=len(plan.branches), running=len(plan.branches))
        u.todo.extend(
            Start(
                f"{step.key}~{name}",
                branch,
                step.home,
                ParentRelation.BRANCH,
                step.key,
                input=step.input,
            )
            for name, branch in plan.branches.items()
        )


def _input_of(u: RunTransition, step: Step, work: Start) -> Any:
    if work.plan.input is not None:
        return work.plan.input(u.names_at(step))
    if work.link in (ParentRelation.BRANCH, ParentRelation.FALLBACK):
        return work.input
    names = u.names_at(step)
    nodes = names.pop("nodes")
    names.pop("run")
    if work.plan.node.map:  # the lists it maps over would go out once per item
        names.pop("input")
        return names
    return names | {need: nodes[need]["output"] for need in work.plan.needs}


def _timed(u: RunTransition, step: Step, plan: NodePlan) -> Step:
    """Keep a graph or race, with the time that it may take where its node says one."""
    timeout_ms = plan.node.timeout_ms
    if timeout_ms is not None:
        step = replace(step, wake_at_ms=nearest(u.now_ms + timeout_ms))
    return u.put(step)


# ---- map ------------------------------------------------------------------------------------


def _open_map(u: RunTransition, step: Step, plan: NodePlan) -> None:
    spec = plan.node.map
    assert spec is not None
    assert plan.over is not None
    items = plan.over(u.names_at(step))
    field = f"nodes.{plan.path}.map.over"
    if isinstance(items, dict) and "$blob" in items:
        raise InvalidInput(
            field=field,
            reason="it gives a reference to a large value, which only workers read",
            cure="Map over a list that fits into a message: of keys, pages or references.",
        )
    if not isinstance(items, list):
        raise InvalidInput(
            field=field,
            reason=f"it gives a {type(items).__name__}, not a list",
            cure="Map over a list.",
        )
    if len(items) > spec.max_items:
        raise InvalidInput(
            field=field,
            reason=f"it gives {len(items)} items and max_items is {spec.max_items}",
            cure="Raise `max_items` or map over fewer.",
        )
    check_items(u, step, len(items))
    check_map(u, step, len(items))
    step = u.put(replace(step, input=items))
    if not items:
        u.settle(step.key, StepState.SUCCEEDED, output=[])
        return
    first = min(len(items), spec.concurrency)
    u.account.spend(ITEM_OPERATIONS * first)
    u.tallies[step.key] = ChildProgress(started=first, running=first)
    for index in range(first):
        _start_item(u, step, plan, index)


def _start_item(u: RunTransition, step: Step, plan: NodePlan, index: int) -> None:
    key = f"{step.key}[{index}]"
    u.todo.append(Start(key, plan, step.home, ParentRelation.ITEM, step.key, index=index))


def _item_settled(u: RunTransition, parent: Step, child: Step) -> None:
    plan = u.node_plan(parent)
    assert plan.node.map is not None
    if child.state is StepState.FAILED and plan.node.map.on_item_error == "fail":
        assert child.error is not None
        if not any(isinstance(work, Failing) and work.key == parent.key for work in u.todo):
            u.todo.append(Failing(parent.key, child.error))  # once, however many fail together
        return
    if (child.state is StepState.FAILED or child.degraded) and not parent.degraded:
        parent = u.put(replace(parent, degraded=True))
    tally = u.tallies[parent.key]
    if tally.started < len(parent.input):
        u.tallies[parent.key] = replace(tally, started=tally.started + 1)
        _start_item(u, parent, plan, tally.started)
    elif tally.running > 1:
        u.tallies[parent.key] = replace(tally, running=tally.running - 1)
    else:
        outputs = [u.steps[f"{parent.key}[{i}]"].output for i in range(len(parent.input))]
        u.settle(parent.key, StepState.SUCCEEDED, output=outputs)


# ---- loop -----------------------------------------------------------------------------------


def _start_round(u: RunTransition, step: Step, plan: NodePlan, number: int) -> None:
    u.tallies[step.key] = ChildProgress(started=number, running=1)
    key = f"{step.key}#{number}"
    u.todo.append(Start(key, plan, step.home, ParentRelation.ROUND, step.key, index=number))


def _round_settled(u: RunTransition, parent: Step, child: Step) -> None:
    plan = u.node_plan(parent)
    spec = plan.node.loop
    assert spec is not None
    assert plan.until is not None
    if child.state is StepState.FAILED:
        assert child.error is not None
        u.todo.append(Failing(parent.key, child.error))
        return
    try:
        done = bool(plan.until(u.names_at(child).also(output=child.output)))
    except HocketError as error:
        u.todo.append(Failing(parent.key, error.info()))
        return
    if done or (child.index >= spec.max_rounds and spec.on_exhausted == "accept"):
        u.settle(parent.key, StepState.SUCCEEDED, output=child.output, degraded=child.degraded)
    elif child.index >= spec.max_rounds:
        exhausted = LoopExhausted(node=parent.path, rounds=child.index)
        u.todo.append(Failing(parent.key, exhausted.info()))
    else:
        _start_round(u, parent, plan, child.index + 1)


# ---- race -----------------------------------------------------------------------------------


def _branch_settled(u: RunTransition, parent: Step, child: Step) -> None:
    plan = u.node_plan(parent)
    node = plan.node
    assert isinstance(node, RaceNode)
    tally = u.tallies[parent.key]
    u.tallies[parent.key] = replace(tally, running=tally.running - 1)
    valid = child.state is StepState.SUCCEEDED and _is_valid(u, parent, plan, child)
    if valid and node.pick == "first_valid":
        _commit(u, parent, child)
    elif tally.running == 1:
        _pick_best(u, parent, plan)


def _pick_best(u: RunTransition, parent: Step, plan: NodePlan) -> None:
    best: tuple[float, Step] | None = None
    for name in plan.branches:
        child: Step = u.steps[f"{parent.key}~{name}"]
        if child.state is StepState.SUCCEEDED and _is_valid(u, parent, plan, child):
            score = _score(u, parent, plan, child)
            if score is not None and (best is None or score > best[0]):
                best = (score, child)
    if best is None:
        u.todo.append(Failing(parent.key, RaceLost(node=parent.path).info()))
    else:
        _commit(u, parent, best[1])


def _commit(u: RunTransition, parent: Step, winner: Step) -> None:
    """Let a branch win: what runs below the others is cancelled, in this very decision."""
    u.steps[parent.key] = replace(parent, winner=winner.key)
    cancel_below(u, parent.key, "race_lost")
    u.settle(parent.key, StepState.SUCCEEDED, output=winner.output, degraded=winner.degraded)


def _is_valid(u: RunTransition, parent: Step, plan: NodePlan, child: Step) -> bool:
    if plan.valid is None:
        return True
    try:
        return bool(plan.valid(u.names_at(parent).also(output=child.output)))
    except HocketError:
        return False  # an output that the test cannot read is not valid


def _score(u: RunTransition, parent: Step, plan: NodePlan, child: Step) -> float | None:
    if plan.score is None:
        return 0.0
    try:
        return float(plan.score(u.names_at(parent).also(output=child.output)))
    except (HocketError, TypeError, ValueError, OverflowError):
        return None


# ---- fallback -------------------------------------------------------------------------------


def _open_fallback(u: RunTransition, step: Step, error: ErrorInfo, *, after: int) -> bool:
    """Open the next fallback that serves this error; tell whether there is one."""
    plan = u.node_plan(step)
    for number in range(after + 1, len(plan.fallbacks) + 1):
        patterns = plan.node.fallback[number - 1].on
        if patterns and not matches(patterns, error):
            continue
        _open_child(u, step, plan.fallbacks[number - 1], number, error)
        return True
    return False


def _open_child(
    u: RunTransition, step: Step, instead: NodePlan, number: int, error: ErrorInfo
) -> None:
    u.put(replace(step, state=StepState.OPEN, error=error, degraded=True, wake_at_ms=None))
    u.tallies[step.key] = ChildProgress(started=number, running=1)
    u.todo.append(
        Start(
            f"{step.key}!{number}",
            instead,
            step.home,
            ParentRelation.FALLBACK,
            step.key,
            index=number,
            input=step.input,
        )
    )


def _fallback_settled(u: RunTransition, parent: Step, child: Step) -> None:
    if child.state is StepState.SUCCEEDED:
        u.settle(parent.key, StepState.SUCCEEDED, output=child.output, degraded=True)
        return
    assert child.error is not None
    if not _open_fallback(u, parent, child.error, after=child.index):
        u.settle(parent.key, StepState.FAILED, error=child.error)


_CHILD_RULES = {
    ParentRelation.ITEM: _item_settled,
    ParentRelation.ROUND: _round_settled,
    ParentRelation.BRANCH: _branch_settled,
    ParentRelation.FALLBACK: _fallback_settled,
}
