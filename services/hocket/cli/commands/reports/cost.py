"""`hocket cost`: what was spent."""

from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from hocket.cli.remote.api import Api
from hocket.cli.remote.target import target_of


class By(StrEnum):
    """What costs are grouped by."""

    PIPELINE = "pipeline"
    NODE = "node"
    RUN = "run"
    KIND = "kind"
    """Retries, and calls that lost their race."""
    CACHE = "cache"
    """The cost that steps served from the cache would have had."""


def cost(
    context: typer.Context,
    by: Annotated[By, typer.Option(help="Group costs by this.")] = By.PIPELINE,
    days: Annotated[
        int,
        typer.Option(
            min=1,
            max=400,
            help="Number of UTC days to include, today among them (ignored for nodes, which cover all "
            "time). Runs count by when they were accepted, everything else by when it happened.",
        ),
    ] = 30,
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Only this pipeline.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show costs, from the report views in Postgres."""
    from decimal import Decimal

    from hocket.cli.drawing.amounts import money
    from hocket.cli.terminal.console import out, print_json, print_table

    api = target_of(context).api()
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    page = _page(api, by, pipeline, first)
    if as_json:
        print_json(page["costs"])
        _say_truncated(page, by)
        return
    out.print(HEADERS[by].format(first=first), style="dim")
    if not page["costs"]:
        nothing = "No costs: there are no model calls."
        out.print("Nothing was served from the cache." if by is By.CACHE else nothing)
        return
    columns = COLUMNS[by]
    rows = [tuple(_cell(row, column) for column in columns) for row in page["costs"]]
    numbers = [name.upper() for name in NUMBERS]
    print_table([name.upper() for name in columns], rows, numbers=numbers, texts=TEXTS)
    amount = "saved_usd" if by is By.CACHE else "cost_usd"
    total = sum((Decimal(row[amount]) for row in page["costs"]), Decimal(0))
    what = "total of these rows" if page["truncated"] else "total"
    out.print(f"{what} {money(total)}", style="bold")
    _say_truncated(page, by)


def _say_truncated(page: Any, by: By) -> None:
    from hocket.cli.terminal.console import notes

    if page["truncated"]:
        shown = "These are the most expensive runs, and there" if by is By.RUN else "There"
        notes.print(
            f"{shown} are more rows; the schema `report` in Postgres has them all.", style="dim"
        )


def _page(api: Api, by: By, pipeline: str | None, first: date) -> Any:
    """Return the REST API's answer about the costs since a day (UTC)."""
    if by is By.NODE:
        return api.get("/v1/costs/nodes", pipeline=pipeline)
    if by is By.RUN:
        since = datetime.combine(first, time(), UTC).isoformat()
        return api.get("/v1/costs/runs", pipeline=pipeline, since=since, limit=MAX_RUNS)
    view = {By.PIPELINE: "pipelines", By.KIND: "kinds", By.CACHE: "cache"}[by]
    page = api.get(f"/v1/costs/{view}", pipeline=pipeline, **{"from": first.isoformat()})
    if by is By.CACHE:
        page["costs"] = page.pop("savings")
    return page


MAX_RUNS = 100
_CALLS = "Calls and charges since {first} 00:00 UTC, by when they happened."
HEADERS = {
    By.PIPELINE: _CALLS,
    By.KIND: _CALLS,
    By.CACHE: "Steps served from the cache since {first} 00:00 UTC.",
    By.NODE: "Calls and charges of all time.",
    By.RUN: "Runs accepted since {first} 00:00 UTC, with all their calls. Calls of no run, and "
    "what runs accepted earlier have spent since then, are not included; `--by pipeline` has both.",
}
COLUMNS = {
    By.PIPELINE: ("day", "pipeline", "runs", "calls", "tokens in", "tokens out", "cost"),
    By.NODE: (
        "pipeline", "node", "model", "backend", "calls", "failed", "tokens in", "tokens out",
        "latency", "cost",
    ),
    By.KIND: ("day", "pipeline", "node", "kind", "runs", "calls", "tokens in", "tokens out", "cost"),
    By.CACHE: ("day", "pipeline", "node", "runs", "hits", "saved"),
    By.RUN: ("run", "pipeline", "status", "time", "calls", "tokens in", "tokens out", "cost"),
}  # fmt: skip
NUMBERS = (
    "runs",
    "calls",
    "failed",
    "tokens in",
    "tokens out",
    "latency",
    "time",
    "cost",
    "hits",
    "saved",
)
TEXTS = ("PIPELINE", "NODE", "MODEL", "BACKEND")
"""Columns that may be cut where a terminal is narrow."""


def _cell(row: dict[str, Any], column: str) -> str:
    from hocket.cli.drawing.amounts import count, duration, money

    if column == "cost":
        return money(row["cost_usd"])
    if column == "saved":
        return money(row["saved_usd"])
    if column in ("latency", "time"):
        return duration(row["mean_latency_ms" if column == "latency" else "duration_ms"])
    if column == "pipeline":
        version = f" v{row['version']}" if row.get("version") else ""
        none = "-" if "run_id" in row else "(none)"  # a call of the HTTP door need not name one
        return f"{row['pipeline'] or none}{version}"
    key = {
        "run": "run_id",
        "failed": "failed_calls",
        "tokens in": "input_tokens",
        "tokens out": "output_tokens",
    }.get(column, column)
    value = row[key]
    return count(value) if column in NUMBERS else str(value or "-")
