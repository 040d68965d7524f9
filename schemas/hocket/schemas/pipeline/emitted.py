"""Treats what a planner emits as data, because models must not write programs. Pure.

Text that a model emits is literal, whatever it looks like, with one exception: a value that consists
entirely of one reference, `{{ nodes.NAME.output.FIELD }}` or `{{ input.FIELD }}`, with dotted names and
nothing else. An expression (`when`, `map.over`, `until`, `valid`, `score`) must be one such path, too.
docs/decisions/0009-what-a-planner-emits.md
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hocket.schemas.pipeline.policy import PlanRefused
from hocket.schemas.pipeline.spec import GraphNode
from hocket.schemas.templates.literals import literal

_PATH = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_REFERENCE = re.compile(rf"\s*\{{\{{\s*{_PATH}\s*\}}\}}\s*", re.ASCII)
_CONDITION = re.compile(rf"\s*(?:not\s+)?{_PATH}\s*", re.ASCII)

TEMPLATES = {
    "graph": ("output",),
    "http": ("params", "query", "headers", "body"),
    "llm": ("prompt", "system"),
    "mcp": ("arguments",),
    "nats": ("headers", "body"),
    "planning": ("prompt",),
    "retrieval": ("query",),
    "sql": ("params",),
}
"""Fields that hold templates in addition to `with`, by node type."""


def as_data(value: Any) -> Any:
    """Return a JSON value whose texts are literal, except those that are one reference."""
    if isinstance(value, str):
        return value if _REFERENCE.fullmatch(value) else literal(value)
    if isinstance(value, Mapping):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_data(item) for item in value]
    return value


def literally(value: Any) -> Any:
    """Return a JSON value whose texts are all literal."""
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, Mapping):
        return {key: literally(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [literally(item) for item in value]
    return value


def disarmed(spec: GraphNode, *, applied: bool = False) -> GraphNode:
    """Return emitted steps in which only references are evaluated; raise PlanRefused for any other
    expression, unless they are `applied`, which means that they run already and are not judged again."""
    document = spec.model_dump(mode="python", by_alias=True, exclude_unset=True)
    document["type"] = "graph"
    _disarm(document, "", applied=applied)
    return GraphNode.model_validate(document)


def _disarm(node: dict[str, Any], field: str, *, applied: bool) -> None:
    for name in ("with", *TEMPLATES.get(node["type"], ())):
        if node.get(name) is not None:
            node[name] = as_data(node[name])
    if not applied:
        for place, text in _expressions(node):
            _check_expression(text, f"{field}.{place}")
    for place, inner in _inner(node):
        _disarm(inner, f"{field}.{place}".lstrip("."), applied=applied)


def _expressions(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("when", "valid", "score"):
        if isinstance(node.get(name), str):
            yield name, node[name]
    for holder, name in (("map", "over"), ("loop", "until"), ("cache", "key")):
        held = node.get(holder)
        if isinstance(held, Mapping) and isinstance(held.get(name), str):
            yield f"{holder}.{name}", held[name]


def _check_expression(text: str, field: str) -> None:
    if _REFERENCE.fullmatch(text) or _CONDITION.fullmatch(text):
        return
    raise PlanRefused(
        field=field,
        reason=f"`{text.strip()[:100]}` is more than a reference, and a planner may not write programs",
        cure="Emit a dotted path, e.g. `nodes.NAME.output.FIELD`; let a step compute what it needs.",
    )


def _inner(node: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for holder in ("nodes", "branches"):
        for name, inner in (node.get(holder) or {}).items():
            yield f"{holder}.{name}", inner
    for i, fallback in enumerate(node.get("fallback") or ()):
        yield f"fallback.{i}.node", fallback["node"]
    if node.get("fast") is not None:
        yield "fast", node["fast"]
