"""Inputs of steps that need no evaluation: constants, and whole values of what the step's node
sees.

A `with` of constants and plain paths (`{{ input.question }}`, `{{ nodes.plan.output }}`), and the
input of a node without `with`, are spliced from existing texts. Anything unusual (a missing name, a
large or deep value) and anything that is not plain is evaluated the general way, which also reports
the errors. Both ways count the same operations.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from hocket.coordinator.core.run.state.stored_form import place, stored_form, text_of
from hocket.schemas.checks.large_values import FIELDS
from hocket.schemas.pipeline.plan import NodePlan

RUN_INPUT: Final = -1
"""The source of a field that reads `input`."""
CONSTANT: Final = -2
_PATH: Final = re.compile(r"\s*\{\{\s*([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\s*\}\}\s*")


class Field:
    """A field of an input: its name as text, the place of the node that it reads (or RUN_INPUT, or
    CONSTANT with its value in `head`), and the names below that node's output."""

    __slots__ = ("head", "names", "source")

    def __init__(self, head: str, source: int, names: tuple[str, ...]) -> None:
        self.head = head
        self.source = source
        self.names = names


class BoundInput:
    """A plain input, and the operations that it counts (`templates/budget.py`)."""

    __slots__ = ("fields", "operations", "text")

    def __init__(self, fields: list[Field], operations: int) -> None:
        self.fields = fields
        self.operations = operations
        self.text: str | None = None
        if all(field.source == CONSTANT for field in fields):
            self.text = "{" + ",".join(field.head for field in fields) + "}"


def bound_input(plan: NodePlan, places: Mapping[str, int]) -> BoundInput | None:
    """Return the plain input of a node; None if it has to be evaluated. `places`: those of the
    nodes that it sees, by name."""
    if plan.node.map or plan.node.loop:
        return None
    if plan.node.with_ is None:
        return _of_needs(plan, places)
    fields: list[Field] = []
    operations = 0
    for name in sorted(plan.node.with_, key=place):
        field = _field(name, plan.node.with_[name], places)
        if field is None:
            return None
        if field.source != CONSTANT:
            operations += len(field.names) + (1 if field.source == RUN_INPUT else 3)
        fields.append(field)
    return BoundInput(fields, operations)


def _of_needs(plan: NodePlan, places: Mapping[str, int]) -> BoundInput | None:
    """Return the input of a node without `with`: the scope's input, and the outputs of its needs."""
    if "input" in plan.needs:
        return None
    sources = {"input": RUN_INPUT} | {need: places[need] for need in plan.needs}
    fields = [Field(text_of(name) + ":", sources[name], ()) for name in sorted(sources, key=place)]
    return BoundInput(fields, 0)


def _field(name: str, value: Any, places: Mapping[str, int]) -> Field | None:
    head = text_of(name) + ":"
    if _is_constant(value):
        return Field(head + text_of(stored_form(value)), CONSTANT, ())
    found = _PATH.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    names = found[1].split(".")
    if not FIELDS.isdisjoint(names[1:]):  # it could read a reference, which is no value
        return None
    if names[0] == "input":
        return Field(head, RUN_INPUT, tuple(names[1:]))
    if names[0] == "nodes" and len(names) > 2 and names[2] == "output" and names[1] in places:
        return Field(head, places[names[1]], tuple(names[3:]))
    return None


def _is_constant(value: Any) -> bool:
    if isinstance(value, str):
        return "{" not in value
    if isinstance(value, Mapping):
        return all(map(_is_constant, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_constant, value))
    return True
