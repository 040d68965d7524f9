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
    can no longer read it, only nulls are removed."""
    try:
        parsed = parse_pipeline(spec)
        short = parsed.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        if parse_pipeline(short) != parsed:
            short = without_nulls(spec)
    except HocketError:
        short = without_nulls(spec)
    nodes = short.get("nodes")
    if isinstance(nodes, dict):
        short["nodes"] = {
            name: _ordered(node, FIRST_OF_NODE) for name, node in _by_needs(nodes).items()
        }
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


def _by_needs(nodes: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes sorted so that each comes after those it needs; Postgres does not preserve the
    order of keys."""
    left, found = dict(nodes), dict[str, Any]()
    while left:
        ready = [name for name, node in left.items() if not _needed(node) & left.keys()]
        for name in ready or list(left):
            found[name] = left.pop(name)
    return found


def _needed(node: Any) -> set[str]:
    needs = node.get("needs") if isinstance(node, dict) else None
    return {one for one in needs if isinstance(one, str)} if isinstance(needs, list) else set()


def _ordered(part: Any, first: tuple[str, ...]) -> Any:
    if not isinstance(part, dict):
        return part
    return {name: part[name] for name in first if name in part} | part
