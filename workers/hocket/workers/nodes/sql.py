"""The `sql` node: one read-only SELECT on a configured database, checked and bounded."""

from collections.abc import Mapping
from typing import Any

from hocket.schemas.errors import InvalidInput
from hocket.schemas.pipeline.spec import SqlNode as SqlSpec
from hocket.workers.call_time import call_time_ms
from hocket.workers.nodes.prompts.templates import render_value
from hocket.workers.runtime.execution.context import Context
from hocket.workers.sql.runner import run_query
from hocket.workers.sql.targets import Targets


class SqlNode:
    """Runs queries on the databases of `targets`."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return `{name?, sql, columns, types, rows, row_count, truncated, elapsed_ms}`."""
        config = context.config
        target = self._targets.get(config["database"], context.tenant)
        sql = sql_of(config.get("query"), context.input)
        result = await run_query(
            target,
            sql,
            params_of(config.get("params") or {}, context.input),
            timeout_ms=call_time_ms(context),
            max_rows=config.get("max_rows") or SqlSpec.model_fields["max_rows"].default,
            tables=config.get("tables") or (),
        )
        output: dict[str, Any] = {
            "sql": result.sql,
            "columns": list(result.columns),
            "types": list(result.types),
            "rows": [list(row) for row in result.rows],
            "row_count": result.row_count,
            "truncated": result.truncated,
            "elapsed_ms": round(result.elapsed_ms, 3),
        }
        name = context.input.get("name") if isinstance(context.input, Mapping) else None
        return {"name": name, **output} if isinstance(name, str) else output


def sql_of(query: str | None, step_input: Any) -> str:
    """Return the SELECT: the node's `query` or otherwise `input.sql`; raise InvalidInput if missing."""
    if query is not None:
        return query
    sql = step_input.get("sql") if isinstance(step_input, Mapping) else None
    if not isinstance(sql, str) or not sql.strip():
        raise InvalidInput(
            field="input.sql",
            reason="there is no query",
            cure="Set the node's `query`, or give `sql` in `with`.",
        )
    return sql


def params_of(templates: Mapping[str, Any], step_input: Any) -> dict[str, Any]:
    """Return the bound parameters: `input.params`, overridden by the node's own, rendered."""
    given = step_input.get("params") if isinstance(step_input, Mapping) else None
    if given is not None and not isinstance(given, Mapping):
        raise InvalidInput(
            field="input.params",
            reason="parameters must be an object",
            cure='Give `{"name": value}`.',
        )
    rendered = {
        name: render_value(template, step_input, f"params.{name}")
        for name, template in templates.items()
    }
    return {**(given or {}), **rendered}
