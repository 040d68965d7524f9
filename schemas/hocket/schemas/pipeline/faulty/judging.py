"""Judges a pipeline document as a whole, and collects all its faults rather than the first."""

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from pydantic import ValidationError

from hocket.schemas.checks.faults import EnoughFaults, Faults
from hocket.schemas.errors import InvalidInput
from hocket.schemas.json_schema.patterns import MAX_PATTERNS_SIZE
from hocket.schemas.json_schema.schema import compile_schema
from hocket.schemas.pipeline.contradictions import check_signals
from hocket.schemas.pipeline.faulty.sound_parts import sound_parts
from hocket.schemas.pipeline.flow.gates import check_flow
from hocket.schemas.pipeline.input_defaults import check_defaults
from hocket.schemas.pipeline.names import check_flow_names, check_names
from hocket.schemas.pipeline.refusals import (
    check_pipeline,
    check_schemas,
    check_scope,
    check_templates,
)
from hocket.schemas.pipeline.spec import GraphNode, Pipeline, fault, parse_pipeline


class Judged(NamedTuple):
    """A pipeline, or what is sound of it: its faults are known."""

    spec: Pipeline
    faults: Faults
    document: Mapping[str, Any]

    def check(self) -> None:
        """Raise InvalidInput with all faults, in the order of the document."""
        if self.faults:
            self.faults.check(lambda field: _place_in(self.document, field))


def judged(pipeline: Pipeline | Mapping[str, Any]) -> Judged:
    """Return a pipeline with its faults; raise InvalidInput if no part of it can be judged, or if it has
    very many faults."""
    faults = Faults(InvalidInput, stops=True)
    try:
        return _judged(pipeline, faults)
    except EnoughFaults:
        faults.check()
        raise


def _judged(pipeline: Pipeline | Mapping[str, Any], faults: Faults) -> Judged:
    if isinstance(pipeline, Pipeline):
        _judge(pipeline, faults, refused=frozenset(), is_whole=True)
        written = pipeline.model_dump(by_alias=True, exclude_unset=True) if faults else {}
        return Judged(pipeline, faults, written)
    if not isinstance(pipeline, Mapping):
        parse_pipeline(pipeline)
    try:
        spec = Pipeline.model_validate(pipeline)
    except ValidationError as error:
        faults.add(fault(error))
        sound = None if faults.is_full else sound_parts(pipeline, error)
        if sound is None:
            faults.check()
            raise
        _judge(sound.spec, faults, refused=sound.refused, is_whole=False)
        return Judged(sound.spec, faults, pipeline)
    _judge(spec, faults, refused=frozenset(), is_whole=True)
    return Judged(spec, faults, pipeline)


def judge_emitted(spec: GraphNode) -> None:
    """Raise InvalidInput with the first fault of the steps that a planner emitted."""
    faults = Faults(InvalidInput, first_only=True)
    check_templates(spec)
    check_schemas(spec.nodes, "nodes", MAX_PATTERNS_SIZE, faults)
    check_scope(spec.nodes, spec.output, faults, field="nodes", is_emitted=True)
    check_signals(spec, faults)
    check_names(spec.nodes, spec.output, faults, schema={})


def _judge(spec: Pipeline, faults: Faults, *, refused: frozenset[str], is_whole: bool) -> None:
    """Collect the faults of a pipeline. `refused` are the fields of nodes that were refused, and
    `is_whole` says that nothing was."""
    try:
        check_templates(spec)
    except InvalidInput as error:  # it would take too long to look at them
        faults.add(error)
        faults.check()
    schema: Mapping[str, Any] = {}
    with faults.part():
        compile_schema(spec.input, "input")
        schema = spec.input
        check_defaults(spec.input, "input")
    check_names(spec.nodes, spec.output, faults, schema=schema, refused=refused)
    if faults.is_full:
        return
    check_flow_names(spec.flow, faults, schema=schema)
    check_flow(spec.flow, faults)
    check_pipeline(spec, faults, is_whole=is_whole)


def _place_in(document: Any, field: str) -> tuple[float, ...]:
    """Return where a field is in a document, to sort by: the positions of the keys that lead to it. What
    is missing comes after what is there."""
    place: list[float] = []
    value = document
    for name in field.split("."):
        if isinstance(value, Mapping) and name in value:
            place.append(next(i for i, key in enumerate(value) if key == name))
            value = value[name]
        elif isinstance(value, list | tuple) and name.isdigit() and int(name) < len(value):
            place.append(int(name))
            value = value[int(name)]
        else:
            return (*place, inf)
    return tuple(place)
