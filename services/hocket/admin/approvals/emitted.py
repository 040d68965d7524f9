"""Finds the questions of approvals that are not in the pipeline's own graph: those that an agent's model
called as tools, and those that a planner emitted."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.pipeline.plan import Plan

MAX_ABOVE = 20
"""The most agents and planners above a step that are followed."""
ABOVE = """
WITH RECURSIVE above AS (
    SELECT key, path, facts, 1 AS depth FROM hocket.step WHERE run_id = $1 AND key = $2
    UNION ALL
    SELECT s.key, s.path, s.facts, above.depth + 1
    FROM above JOIN hocket.step s ON s.run_id = $1 AND s.key = above.facts ->> 'home'
    WHERE above.depth < $3
)
SELECT key, path, coalesce(facts -> 'emitted' ? 'nodes', false) AS plans,
       coalesce(jsonb_path_query_array(facts, '$.emitted.calls[*].step'), '[]') AS steps,
       coalesce(jsonb_path_query_array(facts, '$.emitted.calls[*].tool'), '[]') AS tools
FROM above ORDER BY depth DESC
"""
"""The agents' rounds and planners above a step, the outermost first, with the tools that were called."""
EMITTED = "SELECT facts #>> $3::text[] FROM hocket.step WHERE run_id = $1 AND key = $2"
_PART = re.compile(r"([/~!])([^/~!]+)")


async def prompt_of(
    pool: Pool, plan: Plan, run_id: str, home: str, path: str, *, content: bool
) -> str:
    """Return the prompt of the approval `path` below the step `home`. It is empty if it cannot be found,
    or if a model wrote it and the reader may not see `content`."""
    above = await pool.fetch(ABOVE, run_id, home, MAX_ABOVE, timeout=QUERY_TIMEOUT_S)
    outermost = plan.by_path.get(above[0]["path"]) if above else None
    if outermost is None:
        return ""
    planner: str | None = None
    fields: list[str] = []
    for one, inner in zip(above, [*(row["path"] for row in above[1:]), path], strict=True):
        parts = _PART.findall(inner.removeprefix(one["path"]))
        if one["plans"]:
            planner, fields = one["key"], ["emitted", *_fields(parts)]
            continue
        tools = dict(zip(json.loads(one["steps"]), json.loads(one["tools"]), strict=False))
        if not parts or parts[0][1] not in tools:
            return ""
        fields += ["tools", tools[parts[0][1]], "node", *_fields(parts[1:])]
    fields.append("prompt")
    found: Any = None
    if planner is None:
        found = _at(outermost.node.model_dump(mode="json", by_alias=True), fields)
    elif content:
        found = await pool.fetchval(EMITTED, run_id, planner, fields, timeout=QUERY_TIMEOUT_S)
    return found if isinstance(found, str) else ""


def _fields(parts: Iterable[tuple[str, str]]) -> list[str]:
    """Return where the node with this path is in the document of the node around it."""
    fields: list[str] = []
    for mark, name in parts:
        if mark == "/":
            fields += ["nodes", name]
        elif mark == "~":
            fields += ["branches", name]
        elif name == "0":
            fields.append("fast")
        else:
            fields += ["fallback", str(int(name) - 1), "node"]
    return fields


def _at(document: Any, fields: Iterable[str]) -> Any:
    """Return the value at a place in a document; None if there is none."""
    value = document
    for field in fields:
        if isinstance(value, Mapping):
            value = value.get(field)
        elif isinstance(value, list) and int(field) < len(value):
            value = value[int(field)]
        else:
            return None
    return value
