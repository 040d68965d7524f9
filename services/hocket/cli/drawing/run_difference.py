"""The changes from one run of a pipeline to the next: outcome, time and cost, node by node. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rich.text import Text

from hocket.cli.drawing.amounts import between_ms, duration, money
from hocket.cli.drawing.states import style

MIN_CHANGE_MS = 20.0
MIN_CHANGE = 0.2
"""Times that differ by less, in milliseconds or as a share of the former one, count as equal."""
MANY_TIMES = 3
"""Beyond this factor, an increase is shown without a percentage."""
MAX_NAME_CELLS = 40

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Node:
    """A summary of a node's steps in a run."""

    steps: int
    state: str
    ran_ms: float | None
    cost_usd: Decimal
    input: str
    output: str


def difference(before: Json, after: Json) -> list[Text]:
    """Return the lines that show how a run differs from the previous one; both as returned by
    `read_run`, with values. The first node with another outcome or output is marked."""
    former, latter = _nodes(before), _nodes(after)
    lines = [_head(before, after)]
    marked = False
    for name in _in_order(before, after):
        told = _told(former.get(name), latter.get(name))
        if not told:
            continue
        line = Text.assemble("  ", (f"{name[:MAX_NAME_CELLS]:<{_width(former, latter)}}  ", "bold"))
        for place, part in enumerate(told):
            line.append(", " if place else "")
            line.append(part)
        if not marked and _is_outcome(former.get(name), latter.get(name)):
            line.append("  <- first difference", "yellow")
            marked = True
        lines.append(line)
    if len(lines) == 1:
        lines.append(Text("  every node ended as before, in about the same time", "dim"))
    return lines


def _head(before: Json, after: Json) -> Text:
    line = Text.assemble(("since ", "dim"), before["run"]["run_id"], ": ")
    former, latter = before["run"], after["run"]
    if former["status"] == latter["status"]:
        line.append(f"{latter['status']} as before")
    else:
        line.append(former["status"], style(former["status"]))
        line.append(" -> ")
        line.append(latter["status"], style(latter["status"]))
    line.append(f", {_times(former.get('duration_ms'), latter.get('duration_ms'))}")
    costs = Decimal(before["cost"]["cost_usd"]), Decimal(after["cost"]["cost_usd"])
    line.append(", " + (money(costs[1]) if costs[0] == costs[1] else _costs(*costs)))
    return line


def _told(former: _Node | None, latter: _Node | None) -> list[Text]:
    """Return the lines for a node; empty if nothing changed."""
    if former is None or latter is None:
        return [Text("is new" if former is None else "is gone", "yellow")]
    told: list[Text] = []
    if former.state != latter.state:
        told.append(
            Text.assemble(
                (former.state, style(former.state)), " -> ", (latter.state, style(latter.state))
            )
        )
    if former.steps != latter.steps:
        told.append(Text(f"{former.steps} -> {latter.steps} steps"))
    if former.input != latter.input:
        told.append(Text("other input"))
    if former.output != latter.output:
        told.append(Text("other output"))
    if _is_slower_or_faster(former.ran_ms, latter.ran_ms):
        told.append(Text(_times(former.ran_ms, latter.ran_ms)))
    if former.cost_usd != latter.cost_usd:
        told.append(Text(_costs(former.cost_usd, latter.cost_usd)))
    return told


def _is_outcome(former: _Node | None, latter: _Node | None) -> bool:
    """Tell whether a node differs in more than time and cost."""
    if former is None or latter is None:
        return True
    return (former.state, former.steps, former.input, former.output) != (
        latter.state,
        latter.steps,
        latter.input,
        latter.output,
    )


def _is_slower_or_faster(before_ms: float | None, after_ms: float | None) -> bool:
    if before_ms is None or after_ms is None:
        return False
    change_ms = abs(after_ms - before_ms)
    return change_ms >= MIN_CHANGE_MS and change_ms >= MIN_CHANGE * before_ms


def _times(before_ms: float | None, after_ms: float | None) -> str:
    if not _is_slower_or_faster(before_ms, after_ms):
        return duration(after_ms)
    assert before_ms is not None
    assert after_ms is not None
    told = f"{duration(before_ms)} -> {duration(after_ms)}"
    if after_ms > MANY_TIMES * before_ms:
        return told
    return f"{told} ({100 * (after_ms - before_ms) / before_ms:+.0f} %)"


def _costs(before: Decimal, after: Decimal) -> str:
    return f"{money(before)} -> {money(after)}"


def _in_order(before: Json, after: Json) -> list[str]:
    """Return the nodes of both runs, in the order in which their steps became ready."""
    ready: dict[str, float] = {}
    for found in (before, after):
        for step in found["steps"]:
            at_ms = between_ms(found["run"]["accepted_at"], step["ready_at"]) or 0.0
            ready.setdefault(step["node"], at_ms)
    return sorted(ready, key=lambda name: (ready[name], name))


def _width(*sides: Mapping[str, _Node]) -> int:
    return min(MAX_NAME_CELLS, max(len(name) for side in sides for name in side))


def _nodes(found: Json) -> dict[str, _Node]:
    spent: dict[str | None, Decimal] = {}
    for row in found["cost"]["nodes"]:
        spent[row["node"]] = spent.get(row["node"], Decimal(0)) + Decimal(row["cost_usd"])
    steps: dict[str, list[Json]] = {}
    for step in found["steps"]:
        steps.setdefault(step["node"], []).append(step)
    return {name: _node(of, spent.get(name, Decimal(0))) for name, of in steps.items()}


def _node(steps: Sequence[Json], cost_usd: Decimal) -> _Node:
    own, items = _levels(steps)
    states = {step["state"] for step in own}
    state = next((one for one in ("failed", "cancelled", "expired") if one in states), None)
    began = [step["started_at"] for step in steps if step["started_at"]]
    ended = [step["finished_at"] for step in steps if step["finished_at"]]
    return _Node(
        steps=len(items),
        state=state or (states.pop() if len(states) == 1 else "succeeded"),
        ran_ms=between_ms(min(began), max(ended)) if began and ended else None,
        cost_usd=cost_usd,
        input=_values(steps, "input"),
        output=_values(steps, "output"),
    )


def _levels(steps: Sequence[Json]) -> tuple[Sequence[Json], Sequence[Json]]:
    """Return the own steps of a node, and those of its items or rounds; the same if it is neither mapped
    nor looped, or has none."""
    by_role: dict[str, list[Json]] = {"map": [], "loop": [], "inner": []}
    for step in steps:
        by_role.get(step["role"], by_role["inner"]).append(step)
    levels = [found for found in by_role.values() if found]
    return levels[0], levels[min(1, len(levels) - 1)]


def _values(steps: Sequence[Json], name: str) -> str:
    return json.dumps([(step["step"], step[name]) for step in steps], sort_keys=True)
