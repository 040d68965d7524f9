"""Runs that are written as rows and read back, and a check that they are the same."""

from typing import Any

from hocket.coordinator.core.run.state.run import Run
from support.run_player import Play, stored


def read_back(play: Play) -> Run:
    return play.read_back()


def assert_same(found: Run, run: Run) -> None:
    for one, other in ((_rows(found), _rows(run)), (_derived(found), _derived(run))):
        for key in one.keys() | other.keys():  # one at a time, for a readable difference
            assert (key, one.get(key)) == (key, other.get(key))


def _rows(run: Run) -> dict[str, Any]:
    row, steps = stored(run)
    return {"": row, **{step["key"]: step for step in steps}}


def _derived(run: Run) -> dict[str, Any]:
    """Return what is derived from the rows."""
    steps = run.steps.values()
    return {
        "size_bytes": run.size_bytes,
        "live": [step.key for step in run.live()],
        "due": {step.key: step.due_at_ms for step in run.live()},
        "pausing": run.pausing,
        "waiting": {
            name: waiting
            for name, keys in sorted((run.waiting or {}).items())
            if (waiting := sorted(key for key in keys if run.is_live(run.steps[key])))
        },
        "early": sorted(run.early or ()),
        "scopes": sorted(
            (scope.prefix, scope.left, scope.pending)
            for scope in (run.scope, *(step.scope for step in steps))
            if scope is not None and scope.is_open
        ),
        "children": {
            step.key: (step.children.started, step.children.running)
            for step in steps
            if step.children is not None and step.state == "open" and not step.fallbacks
        },
        "emitted": {
            step.key: (step.emitted.begun, step.emitted.spent_usd)
            for step in steps
            if step.emitted is not None
        },
    }
