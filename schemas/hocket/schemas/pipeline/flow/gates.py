"""The gates of a pipeline's `flow`, ready to use: their keys are compiled, and checked for what they
read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hocket.schemas.checks.faults import Faults
from hocket.schemas.errors import ErrorClass, HocketError, InvalidInput
from hocket.schemas.pipeline.expressions import Evaluate, compile_value, fails_later, readings
from hocket.schemas.pipeline.flow.spec import FLOW_KINDS, Flow, FlowGateSpec, FlowKind

MAX_KEY_CHARS = 200


class FlowKeyInvalid(HocketError):
    """`{field}` gave no key for this run: {reason}. {cure}"""

    code = "flow_key_invalid"
    error_class = ErrorClass.INVALID


@dataclass(frozen=True, slots=True, eq=False)
class FlowGate:
    """A gate that is ready to use. `rule` holds its settings other than the key."""

    kind: FlowKind
    key: Evaluate | None
    field: str
    rule: Mapping[str, Any]

    def key_of(self, names: Mapping[str, Any]) -> str:
        """Return a run's key; raise FlowKeyInvalid, or the error of its template."""
        if self.key is None:
            return ""
        value = self.key(names)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            found = "null" if value is None else f"a {type(value).__name__}"
            raise FlowKeyInvalid(
                field=self.field,
                reason=f"it is {found}, not text, a number or a boolean",
                cure="Make the field that it reads required in the pipeline's `input`.",
            )
        if len(value) > MAX_KEY_CHARS:
            raise FlowKeyInvalid(
                field=self.field,
                reason=f"it has {len(value)} characters; the limit is {MAX_KEY_CHARS}",
                cure="Use an id as the key.",
            )
        if not value.isprintable():
            raise FlowKeyInvalid(
                field=self.field,
                reason="it has unprintable characters",
                cure="Use an id as the key.",
            )
        return value


def compile_flow(flow: Flow | None, *, applied: bool) -> tuple[FlowGate, ...]:
    """Return the gates of a pipeline in order; raise InvalidInput for a key that does not parse.
    `applied` as in `compile_pipeline`."""
    if flow is None:
        return ()
    gates = []
    for kind in FLOW_KINDS:
        spec: FlowGateSpec | None = getattr(flow, kind)
        if spec is not None:
            field = f"flow.{kind}.key"
            rule = spec.model_dump(mode="json", exclude={"key"}, exclude_none=True)
            gates.append(FlowGate(kind, _key(spec.key, field, applied=applied), field, rule))
    return tuple(gates)


def check_flow(flow: Flow | None, faults: Faults) -> None:
    """Collect the keys that are the same for all runs, for example without braces."""
    for kind in FLOW_KINDS:
        spec: FlowGateSpec | None = None if flow is None else getattr(flow, kind)
        if spec is None or spec.key is None:
            continue
        field = f"flow.{kind}.key"
        read = readings(spec.key, field, applied=True)
        if not faults.concern(field) and not any(reading.names for reading in read):
            faults.add(
                InvalidInput(
                    field=field,
                    reason="it reads nothing from `input`, so it is the same for all runs",
                    cure='Write it as `"{{ input.NAME }}"`, or leave it out if all runs share the '
                    "limit.",
                )
            )


def _key(text: str | None, field: str, *, applied: bool) -> Evaluate | None:
    if text is None:
        return None
    try:
        return compile_value(text, field)
    except InvalidInput as error:
        if not applied:
            raise
        return fails_later(error)
