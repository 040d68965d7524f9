"""What is believed of a worker's description of a node type. Pure.

Anybody who can reach NATS may send a description, so it is checked before it is kept. A part that cannot
be used is left out, so that the others count: an external step is to be dispatched after its commit,
whatever the schema of its input is.
"""

from typing import Any

from hocket.schemas.checks.bounded import stored_text
from hocket.schemas.checks.plain_json import check_plain
from hocket.schemas.errors import HocketError
from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.messages import TypeDescribed
from hocket.schemas.pipeline.spec import MAX_TIMEOUT_MS
from hocket.schemas.subjects import TOKEN, is_own_type

MAX_FAULT_CHARS = 400
_SCHEMAS = ("config", "input", "output")


class Description(TypeDescribed):
    """What is known of a version of a type; it names no worker."""

    faults: tuple[str, ...] = ()
    """What its workers say of it that is not used, and why."""


def believed(told: TypeDescribed) -> tuple[Description, Schema | None]:
    """Return what can be used of a description, and the compiled schema of configs, None if any config
    is valid. Raises ValueError if it is not that of a node type."""
    if not is_own_type(told.type):
        raise ValueError("its name is not that of a custom node type")
    if not TOKEN.fullmatch(told.version):
        raise ValueError("its version is not valid")
    fields: dict[str, Any] = dict(told) | {"worker": ""}
    fields["description"] = stored_text(told.description, limit=len(told.description))
    faults: list[str] = list(fields.pop("faults", ()))
    if told.timeout_ms is not None and told.timeout_ms > MAX_TIMEOUT_MS:
        fields["timeout_ms"] = MAX_TIMEOUT_MS
        faults.append(
            f"`timeout_ms` is {MAX_TIMEOUT_MS} instead of {told.timeout_ms:.0f}: "
            "no attempt may take longer."
        )
    compiled: dict[str, Schema | None] = {}
    for name in _SCHEMAS:
        try:
            compiled[name] = _compiled(fields[name], name)
        except HocketError as error:
            fields[name] = None
            reason = " ".join(str(error).split())[:MAX_FAULT_CHARS]
            faults.append(f"The schema of `{name}` is not used: {reason}")
    return Description(**fields, faults=tuple(faults)), compiled.get("config")


def _compiled(schema: dict[str, Any] | None, name: str) -> Schema | None:
    if schema is None:
        return None
    check_plain(schema, name)
    return compile_schema(schema, name)
