"""The inputs of tasks that wait for workers, as text: an object takes ten times the memory."""

from typing import Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from hocket.schemas.messages import RunAccepted

PLACE_BYTES: Final = 32 * 1024
"""A waiting task takes a place for each that its inputs have."""


class Inputs(NamedTuple):
    """The inputs that an acceptance has."""

    run: bytes
    step: bytes | None
    """Of the step from which an ended run is repeated."""


def without_inputs(accepted: RunAccepted) -> tuple[RunAccepted, Inputs]:
    """Return an acceptance without its inputs, and these."""
    changed: dict[str, Any] = {"input": {}}
    origin, step = accepted.origin, None
    if origin is not None and origin.step_input is not None:
        step = _text_of(origin.step_input)
        changed["origin"] = origin.model_copy(update={"step_input": None})
    return accepted.model_copy(update=changed), Inputs(_text_of(accepted.input), step)


def with_inputs(accepted: RunAccepted, inputs: Inputs) -> RunAccepted:
    """Return an acceptance with its inputs again."""
    changed: dict[str, Any] = {"input": from_json(inputs.run)}
    if inputs.step is not None:
        assert accepted.origin is not None
        step = from_json(inputs.step)
        changed["origin"] = accepted.origin.model_copy(update={"step_input": step})
    return accepted.model_copy(update=changed)


def places_of(inputs: Inputs | None) -> int:
    """Return how many places a waiting task with these inputs takes."""
    if inputs is None:
        return 1
    return 1 + (len(inputs.run) + len(inputs.step or b"")) // PLACE_BYTES


def _text_of(value: dict[str, Any]) -> bytes:
    return to_json(value, inf_nan_mode="null")
