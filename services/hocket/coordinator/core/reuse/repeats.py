"""What a run that repeats another takes over from it: the outputs of steps that would do the same again.

A step is not computed again when the step of the same key in the origin run succeeded with the same
type, the same own fields and the same input, and it is not among the forced: the step that the
re-run starts from, and all that comes after it. Containers are always opened, so that what is inside
them decides one by one; a planner's steps are spliced in again as they were. A step that failed and
was got over there (its fallback served it, or its race was won without it) fails again at once, with
the same error, so that the same fallback or branch goes on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hocket.coordinator.core.run.state import (
    ParentRelation,
    Role,
    Run,
    RunStatus,
    Source,
    Step,
    StepState,
)
from hocket.coordinator.core.run.transition import RunTransition, child_key
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import child_run_id
from hocket.schemas.messages import RunOrigin
from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan

_MARKS = "/[#~!"
"""What follows a step's key in the keys of the steps under it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A step of the origin run that may be taken over. `error`: it is to fail again with this;
    `child`: the sub-run it started, from which a new one takes over."""

    step: Step
    config: Mapping[str, Any]
    output: Any = None
    error: ErrorInfo | None = None
    child: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the step ends with this; else only its sub-run is known."""
        return self.child is None


@dataclass(frozen=True, slots=True)
class Reuse:
    """By key what can be taken over, and the keys of the steps that run in any case, with all under
    them."""

    kept: Mapping[str, Kept]
    forced: frozenset[str]


def reuse_of(origin: Run, origin_plan: Plan, plan: Plan, asked: RunOrigin) -> Reuse:
    """Return what a run of `plan` takes over from a run that has ended (with its steps)."""
    forced = frozenset(_forced(origin, origin_plan, plan, asked.from_step))
    again = asked.operation == "retry" and origin.status is RunStatus.DEGRADED
    kept: dict[str, Kept] = {}
    for step in origin.steps.values():
        if step.role in (Role.LEAF, Role.SUBRUN, Role.WAIT) and not _within(forced, step.key):
            found = _kept(origin, step, _plan_of(origin, origin_plan, step), again=again)
            if found is not None:
                kept[step.key] = found
    return Reuse(kept, forced)


def edited_input(u: RunTransition, key: str) -> dict[str, Any] | None:
    """Return the input that a re-run gives to the step it starts from, if this is it."""
    origin = u.run.origin
    return None if origin is None or origin.from_step != key else origin.step_input


def kept_for(u: RunTransition, step: Step) -> Kept | None:
    """Return what a step that is about to begin takes over, if anything."""
    kept = _known(u, step)
    if kept is None or not kept.ended or not same_json(kept.step.input, step.input):
        return None
    return kept


def child_origin(u: RunTransition, step: Step) -> RunOrigin | None:
    """Return the run that a sub-run repeats: the one which the same step of the origin run started."""
    kept = _known(u, step)
    if kept is None or kept.child is None:
        return None
    return RunOrigin(run_id=kept.child, operation="retry")


def source_of(u: RunTransition, kept: Kept) -> Source:
    """Return where a step's output comes from: the run that computed it, however often it was taken
    over since."""
    assert u.run.origin is not None
    before = kept.step.source
    if before is not None:
        return Source("run", before.run_id, before.step)
    return Source("run", u.run.origin.run_id, kept.step.key)


def is_forced(u: RunTransition, step: Step) -> bool:
    """Tell whether a step runs in any case: no cache serves it."""
    reuse: Reuse | None = u.run.reuse
    return reuse is not None and _within(reuse.forced, step.key)


def same_json(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are equal; true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same_json(value, other[name]) for name, value in one.items())
        )
    if isinstance(one, list):
        return (
            isinstance(other, list) and len(one) == len(other) and all(map(same_json, one, other))
        )
    return bool(one == other)


def _known(u: RunTransition, step: Step) -> Kept | None:
    reuse: Reuse | None = u.run.reuse
    if reuse is None:
        return None
    kept = reuse.kept.get(step.key)
    if kept is None or kept.step.type != step.type or kept.step.role is not step.role:
        return None
    return kept if kept.config == u.node_plan(step).config else None


def _kept(origin: Run, step: Step, plan: NodePlan, *, again: bool) -> Kept | None:
    config = plan.config
    if step.emitted is not None:
        return Kept(step, config, output=step.emitted)
    if f"{step.key}!0" in origin.steps:  # its fast variant served: now there may be time
        served = step.state is StepState.SUCCEEDED and not again
        return Kept(step, config, output=step.output) if served else None
    replaced = any(f"{step.key}!{n}" in origin.steps for n in range(1, len(plan.fallbacks) + 1))
    if step.state is StepState.SUCCEEDED and not replaced and not (step.degraded and again):
        return Kept(step, config, output=step.output)
    got_over = step.state is StepState.SUCCEEDED or (
        step.state is StepState.FAILED and _race_was_won(origin, step)
    )
    if got_over and not again and step.error is not None:
        return Kept(step, config, error=step.error)
    if step.role is Role.SUBRUN and step.attempt > 0:
        return Kept(step, config, child=child_run_id(origin.run_id, step.key, step.attempt))
    return None


def _race_was_won(origin: Run, step: Step) -> bool:
    while step.parent:
        step = origin.steps[step.parent]
        if step.role is Role.RACE and step.state is StepState.SUCCEEDED:
            return True
    return False


# ---- the forced -----------------------------------------------------------------------------


def _forced(origin: Run, origin_plan: Plan, plan: Plan, from_step: str | None) -> Iterator[str]:
    """Yield the keys of the steps that run again with all under them: the chosen one, the later
    rounds of its loops, and what needs it or what it stands in."""
    if from_step is None or from_step not in origin.steps:
        return
    step = _whole(origin, origin.steps[from_step])
    yield step.key
    while True:
        if step.link is ParentRelation.ROUND:
            number = step.index + 1
            while (key := f"{step.parent}#{number}") in origin.steps:
                yield key
                number += 1
        elif step.link is ParentRelation.NODE:
            name = _plan_of(origin, origin_plan, step).name
            for scope in _scopes(origin, origin_plan, plan, step):
                for dependent in _downstream(scope, name):
                    yield child_key(step.parent, dependent)
        if not step.parent:
            return
        step = origin.steps[step.parent]


def _whole(origin: Run, step: Step) -> Step:
    """Return the outermost race or fallback's owner around a step, or the step: a race is one
    decision, and a fallback comes after its node."""
    chosen = step
    while step.parent:
        parent = origin.steps[step.parent]
        if step.link in (ParentRelation.BRANCH, ParentRelation.FALLBACK):
            chosen = parent
        step = parent
    return chosen


def _scopes(origin: Run, origin_plan: Plan, plan: Plan, step: Step) -> Iterator[ScopePlan]:
    """Yield the scope that a step stands in, as it was and as it is now."""
    if not step.parent:
        yield from (origin_plan.root, plan.root)
        return
    emitted = origin.emitted.get(step.parent)
    if emitted is not None:
        yield emitted.scope
        return
    parent = origin.steps[step.parent]
    now = plan.by_path.get(parent.path) if not parent.home else None
    for node in (_plan_of(origin, origin_plan, parent), now):
        if node is not None and node.body is not None:
            yield node.body


def _downstream(scope: ScopePlan, name: str) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        node = scope.nodes.get(todo.pop())
        for dependent in node.dependents if node is not None else ():
            if dependent not in found:
                found.add(dependent)
                todo.append(dependent)
    return found


def _plan_of(origin: Run, origin_plan: Plan, step: Step) -> NodePlan:
    by_path = origin.emitted[step.home].by_path if step.home else origin_plan.by_path
    return by_path[step.path]


def _within(forced: frozenset[str], key: str) -> bool:
    """Tell whether a step is one of these or stands under one."""
    if not forced:
        return False
    return key in forced or any(
        key[:place] in forced for place, mark in enumerate(key) if mark in _MARKS
    )
