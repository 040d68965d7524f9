"""Names that expressions see: `input`, `nodes`, `run`, and those of the containers around a
step."""

from collections.abc import Iterator, Mapping
from typing import Any

from hocket.coordinator.core.run.plan.inputs import CONSTANT, RUN_INPUT, BoundInput, Field
from hocket.coordinator.core.run.state.run import (
    CALL,
    FALLBACK,
    ITEM,
    NODE,
    ROUND,
    Run,
    ScopeProgress,
    Step,
)
from hocket.coordinator.core.run.state.stored_form import stored_form
from hocket.coordinator.core.run.state.values import (
    Json,
    is_deeper,
    json_of,
    json_text,
    text_below,
)
from hocket.coordinator.core.run.transition import Transition
from hocket.schemas.checks.plain_json import MAX_DEPTH
from hocket.schemas.pipeline.agents.turns import PREVIOUS
from hocket.schemas.templates.budget import Names

SPLICED_CHARS = 1_000_000
"""A longer input is checked value by value (`templates/results.py`)."""


MAX_TOLD = 100
"""How many errors are kept as expressions see them, until the event has been applied."""


class NodesView(Mapping[str, Any]):
    """`nodes` in an expression: each node of the scope as `{output, error, state}`. The output is
    null if the node was skipped, or is optional and failed.

    A view is for the expressions of one value, during which no step changes. It makes each node
    once, however often they read it: outputs are parsed, and that is not counted."""

    def __init__(self, t: Transition, progress: ScopeProgress) -> None:
        self._t = t
        self._progress = progress
        self._read: dict[str, dict[str, Any]] = {}

    def __getitem__(self, name: str) -> dict[str, Any]:
        found = self._read.get(name)
        if found is None:
            step = self._progress.steps[self._progress.plan.places[name]]
            if step is None:
                raise KeyError(name)
            error = _error_told(self._t, step)
            found = {"output": step.output.value, "error": error, "state": step.state}
            self._read[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._progress.plan.places)

    def __len__(self) -> int:
        return len(self._progress.plan.places)


def names_in(t: Transition, progress: ScopeProgress) -> Names:
    """Return the names that the nodes of a scope see: `input`, `nodes`, `run`."""
    given = input_of(t.run, progress).value
    nodes = NodesView(t, progress)
    return Names(t.account, {"input": given, "nodes": nodes, "run": _described(t.run)})


def names_at(t: Transition, step: Step) -> Names:
    """Return what the expressions of a step's node see: its scope, and the item, round and error of
    the containers between the scope and the step."""
    layers: dict[str, Any] = {}
    around = step
    while around.link != NODE:
        parent = around.parent
        assert parent is not None, around.key
        if around.link == ITEM:
            spec = parent.node.spec.map
            assert spec is not None, around.key
            layers.setdefault(spec.as_, parent.input.value[around.index])
            layers.setdefault("index", around.index)
        elif around.link == ROUND:
            layers.setdefault("round", around.index)
            layers.setdefault("previous", _previous(parent, around.index))
        elif around.link == CALL:
            layers.setdefault("input", around.input.value)
        elif around.link == FALLBACK:
            layers.setdefault("error", _error_told(t, parent))
        around = parent
    return names_in(t, step.within).also(**layers)


def input_of(run: Run, progress: ScopeProgress) -> Json:
    """Return what the nodes of a scope see as `input`."""
    return run.input if progress.owner is None else progress.owner.input


def round_of(step: Step) -> Json | None:
    """Return the input of a round whose loop has an input itself: that input, with the output of
    the previous round. None if each round makes its own."""
    loop = step.parent
    assert loop is not None, step.key
    given = loop.input.value
    if given is None and loop.link != CALL:
        return None
    known = given if isinstance(given, dict) else {"value": given}
    told = {PREVIOUS: _previous(loop, step.index)}
    if step.node.agent is None:
        told["round"] = step.index
    return json_of({**known, **told})


def spliced_input(t: Transition, step: Step, bound: BoundInput) -> Json | None:
    """Return the input of a step, spliced from existing texts; None if it must be evaluated."""
    text = bound.text
    if text is None:
        parts: list[str] = []
        left = SPLICED_CHARS
        values: dict[int, Any] = {}
        for field in bound.fields:
            found = _spliced(t.run, step.within, field, values)
            if found is None:
                return None
            left -= len(found)
            if left < 0:  # before any more is copied
                return None
            parts.append(found)
        text = "{" + ",".join(parts) + "}"
        if len(text) > SPLICED_CHARS or is_deeper(text, MAX_DEPTH):
            return None
    t.account.spend(bound.operations)
    return json_text(text)


def _spliced(run: Run, progress: ScopeProgress, field: Field, values: dict[int, Any]) -> str | None:
    """Return a field of an input as text; None if there is no such value. `values` has those of the
    sources that were parsed for it so far."""
    if field.source == CONSTANT:
        return field.head
    given = _source(run, progress, field.source)
    if given is None:
        return None
    if not field.names:
        return field.head + given.text
    if field.source not in values:
        values[field.source] = given.value
    found = text_below(values[field.source], field.names)
    return None if found is None else field.head + found


def _source(run: Run, progress: ScopeProgress, source: int) -> Json | None:
    if source == RUN_INPUT:
        return input_of(run, progress)
    step = progress.steps[source]
    return None if step is None else step.output


def _error_told(t: Transition, step: Step) -> dict[str, Any] | None:
    """Return a step's error as expressions see it. In one event thousands of them may read it."""
    error = step.error
    if error is None:
        return None
    known = t.told.get(step.key)
    if known is not None and known[0] is error:
        return known[1]
    told: dict[str, Any] = stored_form(error.model_dump(mode="json"))
    if len(t.told) >= MAX_TOLD:
        t.told.clear()
    t.told[step.key] = (error, told)
    return told


def _previous(parent: Step, index: int) -> Any:
    children = parent.children
    assert children is not None, parent.key
    return children.steps[index - 2].output.value if index > 1 else None


def _described(run: Run) -> dict[str, Any]:
    if run.names is None:
        run.names = {
            "id": run.run_id,
            "pipeline": run.pipeline,
            "version": run.version,
            "tenant": run.tenant,
        }
    return run.names
