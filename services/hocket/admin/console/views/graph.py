"""A pipeline's graph as boxes and arrows. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from hocket.schemas.pipeline.plan import NodePlan, Plan, ScopePlan

WITHIN = "/~!"
"""The characters in a path that end the name of an enclosing node."""
MAX_BOXES = 400
"""The maximum number of boxes drawn; of a larger pipeline only the outermost are shown."""


def graph_of(plan: Plan) -> dict[str, Any]:
    """Return a pipeline's boxes and arrows, outermost scopes first. A box names its enclosing box;
    `mark` says what a node is in addition to its type (map, loop, race, branch, fallback)."""
    boxes: list[dict[str, Any]] = []
    arrows: list[tuple[str, str]] = []
    level: list[tuple[ScopePlan, str | None]] = [(plan.root, None)]
    while level and len(boxes) < MAX_BOXES:
        below: list[tuple[ScopePlan, str | None]] = []
        for scope, parent in level:
            for name in scope.order:
                node = scope.nodes[name]
                boxes.append(_box(node, parent))
                arrows += [(scope.nodes[need].path, node.path) for need in node.needs]
                if node.body is not None:
                    below.append((node.body, node.path))
                for inner, mark in _variants(node):
                    boxes.append(_box(inner, node.path, mark))
                    if inner.body is not None:
                        below.append((inner.body, inner.path))
        level = below
    drawn = {box["id"] for box in boxes[:MAX_BOXES]}
    return {
        "boxes": boxes[:MAX_BOXES],
        "arrows": [pair for pair in arrows if drawn.issuperset(pair)],
        "more": len(plan.by_path) - len(drawn),
    }


def with_emitted(graph: dict[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a graph with additional boxes for the nodes of a run that a planner emitted, each within
    the planner's box."""
    boxes = list(graph["boxes"])
    drawn = {box["id"] for box in boxes}
    new = [node for node in nodes if node["node"] not in drawn]
    for node in sorted(new, key=lambda one: str(one["node"]).count("/"))[: MAX_BOXES - len(boxes)]:
        path = str(node["node"])
        above = (path[:at] for at in range(len(path) - 1, 0, -1) if path[at] in WITHIN)
        parent = next((one for one in above if one in drawn), None)
        name = path if parent is None else path[len(parent) + 1 :]
        boxes.append(
            {"id": path, "name": name, "type": node["type"], "mark": "emitted", "parent": parent}
        )
        drawn.add(path)
    return {**graph, "boxes": boxes}


def _variants(node: NodePlan) -> list[tuple[NodePlan, str]]:
    found = [(branch, "branch") for branch in node.branches.values()]
    found += [(fallback, "fallback") for fallback in node.fallbacks]
    found += [(called, "call") for called in node.calls.values()]
    if node.fast is not None:
        found.append((node.fast, "fast"))
    return found


def _box(node: NodePlan, parent: str | None, mark: str = "") -> dict[str, Any]:
    if not mark:
        mark = "map" if node.over is not None else "loop" if node.until is not None else ""
    return {
        "id": node.path,
        "name": node.name,
        "type": node.node.type,
        "mark": mark,
        "parent": parent,
    }
