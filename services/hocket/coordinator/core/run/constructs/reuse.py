"""What a run that repeats another takes over from it: the outputs of steps that would do the same
again.

A step is not computed again if the step with the same key in the origin run succeeded with the same
type, own fields and input, and if it is not forced. Forced are the step that the re-run starts from
and everything after it. Containers are always opened, so that the steps inside them are decided one
by one; a planner's steps are spliced in again as they were. A step whose failure the origin run
survived (a fallback served, its own or that of a container around it, its race was won without it,
or an agent's model was told of it) fails again at once, with the same error, so that the same
fallback or branch takes over, or the agent's rounds stay as they were. So does a graph or race that
took too long: nothing in it had failed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.coordinator.core.run.plan.nodes import (
    GRAPH,
    LEAF,
    RACE,
    SUBRUN,
    WAIT,
    CompiledPlan,
    PipelinePlan,
    Scope,
)
from hocket.coordinator.core.run.state.run import (
    BRANCH,
    CALL,
    FAILED,
    FALLBACK,
    KEY_MARKS,
    NODE,
    ROUND,
    RUN_DEGRADED,
    SUCCEEDED,
    Run,
    Source,
    Step,
)
from hocket.coordinator.core.run.state.values import NULL, Json
from hocket.schemas.checks.plain_json import same_json
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.ids import child_run_id, input_digest
from hocket.schemas.messages import RunOrigin

TIMED_OUT = "step_timed_out"
"""The code of the error of a graph or race that took too long (`results.StepTimedOut`)."""

LARGE_BYTES = 4_096
"""The size from which inputs are compared by their digests."""


class Kept:
    """A step of the origin run that may be taken over. With `error`, it fails again with that
    error; with `child`, only the sub-run that it started is known, from which a new one takes over."""

    __slots__ = ("child", "config", "error", "output", "step")

    def __init__(
        self,
        step: Step,
        *,
        output: Json = NULL,
        error: ErrorInfo | None = None,
        child: str | None = None,
    ) -> None:
        self.step = step
        self.config: Mapping[str, Any] = step.node.own_fields
        self.output = output
        self.error = error
        self.child = child


class Reuse:
    """What can be taken over, by step key, and the keys of the steps that run in any case, together
    with all steps under them."""

    __slots__ = ("_digests", "forced", "kept")

    def __init__(self, kept: dict[str, Kept], forced: frozenset[str]) -> None:
        self.kept = kept
        self.forced = forced
        self._digests: dict[bytes, str] = {}
        """Those of large inputs, by the hash of their text."""

    def is_same(self, one: Json, other: Json) -> bool:
        """Tell whether two inputs are equal. Large ones, of which a retry compares hundreds in one
        event, are compared by their digests, and each of them is made once."""
        if max(one.size, other.size) <= LARGE_BYTES:
            return same_json(one.value, other.value)
        return one.text == other.text or self._digest(one) == self._digest(other)

    def _digest(self, value: Json) -> str:
        key = hashlib.sha256(value.text.encode()).digest()
        if key not in self._digests:
            self._digests[key] = input_digest(value.value)
        return self._digests[key]


def reuse_of(origin: Run, plan: PipelinePlan, asked: RunOrigin) -> Reuse:
    """Return what a run of `plan` takes over from `origin`, a run that has ended (loaded with its
    steps)."""
    from_step = asked.from_step if asked.operation == "rerun" else None  # a retry's is only edited
    forced = frozenset(_forced(origin, plan, from_step))
    opened = frozenset(_with_those_above(forced))
    again = asked.operation == "retry" and origin.status == RUN_DEGRADED
    kept: dict[str, Kept] = {}
    for step in origin.steps.values():
        if step.role in (LEAF, SUBRUN, WAIT, GRAPH, RACE) and not _within(forced, step.key):
            found = _kept(origin, step, opened, again=again)
            if found is not None:
                kept[step.key] = found
    return Reuse(kept, forced)


def edited_input(run: Run, key: str) -> dict[str, Any] | None:
    """Return the input that a re-run sets for the step it starts from; None for any other step."""
    origin = run.origin
    return None if origin is None or origin.from_step != key else origin.step_input


def kept_for(run: Run, step: Step) -> Kept | None:
    """Return what a step that is about to begin takes over, if anything."""
    if run.reuse is None:
        return None
    kept = _known(run, step)
    if kept is None or kept.child is not None:
        return None
    if kept.error is not None and step.home is not None and step.home.source is None:
        return None  # it was planned or called anew, so it is tried
    return kept if run.reuse.is_same(kept.step.input, step.input) else None


def child_origin(run: Run, step: Step) -> RunOrigin | None:
    """Return the origin of a sub-run: the run that the same step of the origin run started. A sub-run
    of a retry is a retry and keeps its version; that of a re-run takes the version of new runs."""
    kept = _known(run, step)
    if kept is None or kept.child is None:
        return None
    assert run.origin is not None, run.run_id
    return RunOrigin(run_id=kept.child, operation=run.origin.operation)


def source_of(run: Run, kept: Kept) -> Source:
    """Return where a step's output comes from: the run that computed it, however often it has been
    taken over since."""
    assert run.origin is not None
    before = kept.step.source
    if before is not None:
        return Source("run", before.run_id, before.step)
    return Source("run", run.origin.run_id, kept.step.key)


def is_forced(run: Run, step: Step) -> bool:
    """Tell whether a step runs in any case, even if the cache could serve it."""
    reuse: Reuse | None = run.reuse
    return reuse is not None and _within(reuse.forced, step.key)


def _known(run: Run, step: Step) -> Kept | None:
    reuse: Reuse | None = run.reuse
    if reuse is None:
        return None
    kept = reuse.kept.get(step.key)
    if kept is None or kept.step.node.type != step.node.type or kept.step.role != step.role:
        return None
    own = step.node.own_fields
    return kept if kept.config is own or same_json(kept.config, own) else None


def _kept(origin: Run, step: Step, opened: frozenset[str], *, again: bool) -> Kept | None:
    if step.emitted is not None:
        return Kept(step, output=step.emitted.value)
    was_fast = step.fallbacks is not None and step.fallbacks[0].index == 0
    if step.role not in (GRAPH, RACE) and _has_output(step, again=again, was_fast=was_fast):
        return Kept(step, output=step.output)
    if was_fast:  # there may be time for the node itself now
        return None
    if step.error is not None and _fails_again(step, step.error, opened, again=again):
        return Kept(step, error=step.error)
    if step.role == SUBRUN and step.attempt > 0:
        return Kept(step, child=child_run_id(origin.run_id, step.key, step.attempt))
    return None


def _fails_again(step: Step, error: ErrorInfo, opened: frozenset[str], *, again: bool) -> bool:
    """Tell whether a step fails again at once, with the error that it had. In `opened` something
    runs in any case (`_with_those_above`), so that it is tried again."""
    if step.role in (GRAPH, RACE) and error.code != TIMED_OUT:
        return False
    return _was_told(step, opened) or (not again and _was_got_over(step, opened))


def _has_output(step: Step, *, again: bool, was_fast: bool) -> bool:
    """Tell whether a step has an output to take over: its node's own, or its fast variant's. With
    `again`, degraded outputs and those of fast variants are tried once more instead."""
    if step.state != SUCCEEDED or (step.fallbacks and not was_fast):
        return False
    return not again or not (step.degraded or was_fast)


def _was_got_over(step: Step, opened: frozenset[str]) -> bool:
    """Tell whether the run survived a step's failure: by its fallback or that of a container around
    it, or by another branch of a race. A container in which a step runs in any case is tried again."""
    if step.state == SUCCEEDED:
        return step.key not in opened
    if step.state != FAILED:
        return False
    around = step.parent
    while around is not None:
        if around.state == SUCCEEDED and (around.role == RACE or around.fallbacks):
            return around.key not in opened
        around = around.parent
    return False


def _was_told(step: Step, opened: frozenset[str]) -> bool:
    """Tell whether an agent's model was told of a step's failure, which failed the tool that it
    called: a result like any other. If it changed, every later round would be another one."""
    tool = step
    while tool.state == FAILED and tool.parent is not None:
        around = tool.parent
        if around.emitted is not None and around.node.agent is not None:
            return around.state == SUCCEEDED and tool.key not in opened
        tool = around
    return False


# ---- the forced -----------------------------------------------------------------------------


def _forced(origin: Run, plan: PipelinePlan, from_step: str | None) -> Iterator[str]:
    """Yield the keys of the steps that run again with everything under them: the chosen step, the
    later rounds of its loops, and whatever needs it or its containers."""
    if from_step is None or from_step not in origin.steps:
        return
    step = _whole(origin.steps[from_step])
    yield step.key
    while True:
        parent = step.parent
        if step.link == ROUND:
            assert parent is not None, step.key
            assert parent.children is not None, step.key
            yield from [later.key for later in parent.children.steps[step.index :]]
        elif step.link == NODE:
            for scope in _scopes(origin, plan, step):
                below = _downstream(scope, step.node.name)
                yield from [step.within.prefix + name for name in below]
        if parent is None:
            return
        step = parent


def _with_those_above(forced: frozenset[str]) -> Iterator[str]:
    """Yield the keys of the forced steps, and of those under which they lie."""
    for key in forced:
        yield key
        yield from [key[:place] for place, mark in enumerate(key) if mark in KEY_MARKS]


def _whole(step: Step) -> Step:
    """Return the outermost race, node with fallbacks, or caller around a step, otherwise the step
    itself: a race is one decision, a fallback comes after its node, and what a handler calls is
    part of what it does."""
    chosen = step
    while step.parent is not None:
        if step.link in (BRANCH, FALLBACK, CALL):
            chosen = step.parent
        step = step.parent
    return chosen


def _scopes(origin: Run, plan: PipelinePlan, step: Step) -> Iterator[Scope]:
    """Yield the scope that contains a step, as it was and as it is now."""
    parent = step.parent
    if parent is None:
        before: CompiledPlan | None = origin.plan
        assert before is not None, origin.run_id
        yield from (before.root, plan.root)
        return
    if parent.emitted is not None:
        yield parent.emitted.plan.root
        return
    now = plan.by_path.get(parent.node.path) if parent.home is None else None
    for node in (parent.node, now):
        if node is not None and node.body is not None:
            yield node.body


def _downstream(scope: Scope, name: str) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        place = scope.places.get(todo.pop())
        for dependent in scope.nodes[place].dependents if place is not None else ():
            below = scope.nodes[dependent].name
            if below not in found:
                found.add(below)
                todo.append(below)
    return found


def _within(forced: frozenset[str], key: str) -> bool:
    """Tell whether a step is one of these or lies under one."""
    if not forced:
        return False
    return key in forced or any(
        key[:place] in forced for place, mark in enumerate(key) if mark in KEY_MARKS
    )
