"""Races (`race`): branches run side by side with the same input; the first valid one wins, or the
best."""

from math import isfinite
from typing import Any

from hocket.coordinator.core.run.ends.ending import cancel_below
from hocket.coordinator.core.run.state.names import names_at
from hocket.coordinator.core.run.state.run import BRANCH, SUCCEEDED, Children, Step
from hocket.coordinator.core.run.transition import START, Transition
from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.spec import RaceNode


class RaceLost(HocketError):
    """No branch of `{node}` returned a valid output. See the errors of its branches."""

    code = "race_lost"


def open_race(t: Transition, step: Step) -> None:
    """Start all branches."""
    branches = step.node.branches
    step.children = Children(started=len(branches), running=len(branches))
    for branch in branches:
        key = f"{step.key}~{branch.name}"
        child = Step(key, branch, branch.role, BRANCH, step, step.within, 0, t.now_ms)
        child.input = step.input
        t.todo.append((START, child, None))


def branch_settled(t: Transition, parent: Step, child: Step) -> None:
    """Let a branch win, or choose the best when the last has ended."""
    race, children = parent.node.spec, parent.children
    assert isinstance(race, RaceNode)
    assert children is not None, parent.key
    children.running -= 1
    valid = child.state == SUCCEEDED and _is_valid(t, parent, child)
    if valid and race.pick == "first_valid":
        _win(t, parent, child)
    elif children.running == 0:
        _pick_best(t, parent, children.steps)


def _pick_best(t: Transition, parent: Step, branches: list[Step]) -> None:
    best: Step | None = None
    best_score: Any = 0
    for child in branches:
        if child.state == SUCCEEDED and _is_valid(t, parent, child):
            score = _score(t, parent, child)
            if score is not None and (best is None or score > best_score):
                best, best_score = child, score
    if best is None:
        t.fail(parent, RaceLost(node=parent.node.path).info())
    else:
        _win(t, parent, best)


def _win(t: Transition, parent: Step, winner: Step) -> None:
    """Let a branch win, and cancel what still runs below the others within the same event."""
    parent.winner = winner.key
    cancel_below(t, parent, "race_lost")
    t.settle(parent, SUCCEEDED, output=winner.output, degraded=winner.degraded)


def _is_valid(t: Transition, parent: Step, child: Step) -> bool:
    valid = parent.node.plan.valid
    if valid is None:
        return True
    try:
        return bool(valid(names_at(t, parent).also(output=child.output.value)))
    except HocketError:
        return False  # an output that the test cannot read is not valid


def _score(t: Transition, parent: Step, child: Step) -> Any:
    """Return a branch's score, a finite number; None if it is anything else. An integer stays one,
    because those above 2**53 would become equal as `float`s."""
    score = parent.node.plan.score
    if score is None:
        return 0
    try:
        found: Any = score(names_at(t, parent).also(output=child.output.value))
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        return found if is_number and isfinite(found) else None
    except (HocketError, OverflowError):  # an integer that is larger than any `float`
        return None
