"""`hocket cost`: what was spent."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from hocket.cli.target import target_of


class By(StrEnum):
    """What costs are added up by."""

    PIPELINE = "pipeline"
    NODE = "node"
    RUN = "run"


def cost(
    context: typer.Context,
    by: Annotated[By, typer.Option(help="Add up by this.")] = By.PIPELINE,
    days: Annotated[
        int, typer.Option(min=1, max=400, help="Of so many days (nodes: of all time).")
    ] = 30,
    pipeline: Annotated[str | None, typer.Option("--pipeline", "-p", help="Of this one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Show what was spent, from the report views in Postgres."""
    from decimal import Decimal

    from hocket.cli.console import notes, out, print_json, print_table
    from hocket.cli.drawing.amounts import money

    api = target_of(context).api()
    today = datetime.now(UTC)
    if by is By.PIPELINE:
        first = (today - timedelta(days=days - 1)).date().isoformat()
        page = api.get("/v1/costs/pipelines", pipeline=pipeline, **{"from": first})
    elif by is By.NODE:
        page = api.get("/v1/costs/nodes", pipeline=pipeline)
    else:
        since = (today - timedelta(days=days)).isoformat()
        page = api.get("/v1/costs/runs", pipeline=pipeline, since=since, limit=100)
    if as_json:
        print_json(page["costs"])
        return
    if not page["costs"]:
        out.print("Nothing was spent: there are no model calls.")
        return
    columns = COLUMNS[by]
    rows = [tuple(_cell(row, column) for column in columns) for row in page["costs"]]
    print_table([name.upper() for name in columns], rows, numbers=[n.upper() for n in NUMBERS])
    total = sum((Decimal(row["cost_usd"]) for row in page["costs"]), Decimal(0))
    out.print(f"total {money(total)}", style="bold")
    if page["truncated"]:
        notes.print("There is more; schema `report` in Postgres has it all.", style="dim")


COLUMNS = {
    By.PIPELINE: ("day", "pipeline", "runs", "calls", "tokens in", "tokens out", "cost"),
    By.NODE: (
        "pipeline", "node", "model", "backend", "calls", "failed", "tokens in", "tokens out",
        "latency", "cost",
    ),
    By.RUN: ("run", "pipeline", "status", "time", "calls", "tokens in", "tokens out", "cost"),
}  # fmt: skip
NUMBERS = ("runs", "calls", "failed", "tokens in", "tokens out", "latency", "time", "cost")


def _cell(row: dict[str, Any], column: str) -> str:
    from hocket.cli.drawing.amounts import count, duration, money

    if column == "cost":
        return money(row["cost_usd"])
    if column in ("latency", "time"):
        return duration(row["mean_latency_ms" if column == "latency" else "duration_ms"])
    if column == "pipeline":
        version = f" v{row['version']}" if row.get("version") else ""
        return f"{row['pipeline'] or '(no run)'}{version}"
    key = {
        "run": "run_id",
        "failed": "failed_calls",
        "tokens in": "input_tokens",
        "tokens out": "output_tokens",
    }.get(column, column)
    value = row[key]
    return count(value) if column in NUMBERS else str(value or "-")
