"""Documents for people to read and edit: without fields that say nothing. Pure."""

from typing import Any

import yaml

from hocket.schemas.errors import HocketError
from hocket.schemas.pipeline.document import DocumentDumper
from hocket.schemas.pipeline.spec import parse_pipeline

FIRST_OF_PIPELINE = ("pipeline", "description", "slo_ms", "class", "input", "nodes")
FIRST_OF_NODE = ("type", "description", "needs")


def as_yaml(spec: dict[str, Any]) -> str:
    """Return a pipeline's specification as a text to edit. Takes a second for a very large one."""
    text = yaml.dump(
        short_spec(spec), Dumper=DocumentDumper, sort_keys=False, allow_unicode=True, width=100
    )
    return str(text)


def short_spec(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a pipeline's specification without default values; its meaning is the same. If this release
    can no longer read it, only nulls are removed. Nodes are in the order in which runs use them."""
    try:
        parsed = parse_pipeline(spec)
        short = parsed.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if parse_pipeline(short) != parsed:
            short = without_nulls(spec)
    except HocketError:
        short = without_nulls(spec)
    nodes = short.get("nodes")
    if isinstance(nodes, dict):
        short["nodes"] = {name: _ordered(node, FIRST_OF_NODE) for name, node in nodes.items()}
    ordered: dict[str, Any] = whole_times(_ordered(short, FIRST_OF_PIPELINE))
    return ordered


def without_nulls(value: Any) -> Any:
    """Return a document without null fields."""
    if isinstance(value, dict):
        return {key: without_nulls(part) for key, part in value.items() if part is not None}
    return value


def whole_times(value: Any) -> Any:
    """Return a document with whole-numbered times written without a decimal point: `slo_ms: 8000`, not
    `8000.0`."""
    if isinstance(value, dict):
        return {key: _whole_time(key, whole_times(part)) for key, part in value.items()}
    if isinstance(value, list):
        return [whole_times(part) for part in value]
    return value


def _whole_time(key: str, value: Any) -> Any:
    is_time = isinstance(value, float) and key.endswith(("_ms", "_s"))
    return int(value) if is_time and value.is_integer() else value


def _ordered(part: Any, first: tuple[str, ...]) -> Any:
    if not isinstance(part, dict):
        return part
    return {name: part[name] for name in first if name in part} | part
