"""Money: what was spent, of which budgets, and that the SQL beside each figure gives it."""

import asyncio
import html
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

from hocket.admin.console.rendering import count, usd
from hocket.cli.app import app as cli
from hocket.schemas.messages import BudgetRule, ReplicasTold
from support.administration.console_rig import DECISION, NOW, PAGE, RUN, add_run, cookie_of
from support.administration.console_rig import asked_bare as asked
from support.administration.told_replicas import ToldGateways
from support.gateway.gateway_process import running_gateway
from support.rest_rig import Rest
from support.runs.rows import insert_call, insert_step

SOON = timedelta(minutes=2)
"""Whatever hour or day begins while a test runs has what was spent then."""
PATH = [["hello", "hello", 1, "queue", 300_000, 1], ["hello", "hello", 1, "model", 700_000, 1]]


def statements_of(page: str) -> list[str]:
    """Return the SQL that a page shows."""
    found = re.findall(r'<pre tabindex="0" aria-label="SQL[^"]*">(.*?)</pre>', page, re.S)
    return [html.unescape(one) for one in found]


def cells_of(page: str) -> list[tuple[str, ...]]:
    """Return the rows of a page's tables as text."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.S)
    return [
        tuple(
            " ".join(html.unescape(re.sub(r"<[^>]+>", " ", cell)).split())
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)
        )
        for row in rows
    ]


async def spend(rest: Rest) -> None:
    await add_run(rest, path=PATH, budget=20)
    costs: Iterable[tuple[str, dict[str, Any]]] = (
        ("c1", {"cost": 3, "labels": {"customer": "vip"}}),
        ("c2", {"cost": 1, "kind": "retry", "labels": {"customer": "new"}}),
        ("c3", {"cost": Decimal("0.5"), "node": "bye", "model": "small", "decision": DECISION}),
        ("c4", {"cost": 9, "pipeline": "other"}),
    )
    at = datetime.now(UTC) + SOON
    for call_id, fields in costs:
        named = {"run_id": RUN, "pipeline": "greet", **fields}
        await insert_call(rest.pool, call_id, at, **named)
    await insert_call(rest.pool, "theirs", at, tenant="acme", cost=70)


async def test_what_is_spent_of_each_budget_is_shown_with_who_used_most_first(
    rest: Rest, nats_url: str, tmp_path: Path
) -> None:
    await spend(rest)
    budgets = {
        "tenants": {"*": {"usd": 20, "per": "day"}},
        "pipelines": {"greet": {"usd": 5}, "acme/greet": {"usd": 1}, "idle": {"usd": 2}},
        "labels": {"customer=*": {"usd": 2, "per": "hour"}, "customer=vip": {"usd": 30}},
    }
    async with running_gateway(nats_url, tmp_path, None, budgets=budgets):
        page = (await rest.get("/console/money", headers=PAGE)).body
        told = (await rest.get("/v1/costs/budgets")).body
        environment = {"HOCKET_API_URL": rest.url, "HOCKET_API_KEY": rest.key, "COLUMNS": "200"}
        command = ["gateway", "budgets"]
        said = await asyncio.to_thread(CliRunner().invoke, cli, command, env=environment)

    rows = [row for row in cells_of(page) if row and row[0] in ("tenant", "pipeline", "label")]
    assert [row[:5] for row in rows] == [
        ("pipeline", "greet", "$4.50", "$5.00", "month"),
        ("tenant", "default", "$13.50", "$20.00", "day"),
        ("label", "customer=new", "$1.00", "$2.00", "hour"),
        ("label", "customer=vip", "$3.00", "$30.00", "month"),
        ("pipeline", "idle", "$0", "$2.00", "month"),
    ]
    assert [row[6] for row in rows] == ["$0.50", "$6.50", "$1.00", "$27.00", "$2.00"]
    assert "90\N{NO-BREAK SPACE}%" in html.unescape(page)
    assert [(one["level"], one["name"]) for one in told["budgets"]] == [row[:2] for row in rows]
    assert (Decimal(told["budgets"][0]["spent_usd"]), told["truncated"]) == (Decimal("4.5"), False)
    assert said.exit_code == 0, said.output
    assert said.stdout.index("greet") < said.stdout.index("default") < said.stdout.index("idle")


async def test_a_tenant_is_not_told_whom_the_configuration_names(rest: Rest) -> None:
    rules = (
        BudgetRule(level="label", name="customer=secret", usd=Decimal(1), per="day"),
        BudgetRule(level="label", name="rival/customer=theirs", usd=Decimal(1), per="day"),
        BudgetRule(level="tenant", name="acme", usd=Decimal(50), per="day"),
    )
    told = ReplicasTold(gateway="g1", gateways=("g1",), budgets=rules)
    await ToldGateways(rest.bus, told).open()
    await spend(rest)
    own = await cookie_of(rest, await rest.make_key("viewer", "acme"))

    narrow = (await asked(rest, "GET", "/console/money", headers=own)).body
    whole = (await rest.get("/console/money?tenant=acme", headers=PAGE)).body

    assert "used up" in narrow
    assert "customer=secret" not in narrow
    assert "customer=secret" in whole
    assert "theirs" not in whole.partition("<h2>This month")[0]


async def test_a_table_that_takes_too_long_leaves_the_rest_of_the_page(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What canceled the statement is another one here: the time of tests is their own."""
    rule = BudgetRule(level="label", name="customer=*", usd=Decimal(1), per="day")
    told = ReplicasTold(gateway="g1", gateways=("g1",), budgets=(rule,))
    await ToldGateways(rest.bus, told).open()
    await spend(rest)
    fetch = asyncpg.Pool.fetch

    async def fails_for_labels(pool: Any, query: str, *values: Any, **more: Any) -> Any:
        if "label" in query:
            raise asyncpg.QueryCanceledError("canceling statement due to user request")
        return await fetch(pool, query, *values, **more)

    monkeypatch.setattr(type(rest.pool), "fetch", fails_for_labels)

    answer = await rest.get("/console/money", headers=PAGE)

    assert answer.status == 200
    assert "This table took too long." in answer.body
    assert "FROM report.cost_by_label" in answer.body
    assert "Adding up what was spent took too long." in answer.body
    assert ("greet", "3", "$4.50") in [row[:3] for row in cells_of(answer.body)]


async def test_without_a_gateway_budgets_are_not_known(rest: Rest) -> None:
    page = (await rest.get("/console/money", headers=PAGE)).body

    assert "No gateway answers; only gateways know the budgets." in page
    assert "Nothing was spent in this period" in page


@pytest.mark.parametrize(
    ("path", "statements"),
    [
        ("/console/money?days=30", 10),
        ("/console/money?days=1", 9),
        ("/console/models", 1),
        ("/console/pipelines", 1),
        ("/console/pipelines/greet", 3),
        (f"/console/runs/{RUN}?view=calls", 1),
        ("/console/runs?status=succeeded&labels=customer=vip", 1),
        ("/console/system", 1),
    ],
)
async def test_the_sql_beside_a_figure_gives_it(rest: Rest, path: str, statements: int) -> None:
    await spend(rest)
    await rest.pool.execute("INSERT INTO hocket.partition (partition, owner) VALUES (0, 'c1')")
    found = statements_of((await rest.get(path, headers=PAGE)).body)
    before = [await rest.pool.fetch(statement) for statement in found]
    shown = html.unescape((await rest.get(path, headers=PAGE)).body)

    assert len(found) == statements, found
    for statement, earlier in zip(found, before, strict=True):
        for row, old in zip(await rest.pool.fetch(statement), earlier, strict=True):
            for name in ("cost", "cost_usd", "spent_usd", "forecast_usd", "waste"):
                if row.get(name) is not None and not path.startswith("/console/runs?"):
                    may_be = {usd(old[name]), usd(row[name])}  # a forecast changes with the time
                    assert any(one in shown for one in may_be), (name, statement)
            for name in ("calls", "running"):
                if row.get(name) is not None:
                    assert count(row[name]) in shown, (name, statement)


async def test_the_sql_of_a_cost_is_the_reports_and_means_the_days_of_the_page(rest: Rest) -> None:
    await spend(rest)
    await insert_call(rest.pool, "old", datetime.now(UTC) - timedelta(days=20), cost=500)

    week, month = [
        statements_of((await rest.get(f"/console/money?days={days}", headers=PAGE)).body)[0]
        for days in (7, 30)
    ]

    assert "FROM report.cost_by_kind" in week
    assert (await rest.pool.fetchrow(week))["cost"] == Decimal("13.5")
    assert (await rest.pool.fetchrow(month))["cost"] == Decimal("513.5")


async def test_what_tools_charged_is_neither_waste_nor_a_call(rest: Rest) -> None:
    await add_run(rest)
    await insert_step(rest.pool, RUN, "hello", datetime.now(UTC) - timedelta(seconds=1))
    await rest.pool.execute("""UPDATE hocket.step SET facts = '{"charged_usd": "2"}'""")
    alone = (await rest.get("/console/money", headers=PAGE)).body
    await insert_call(rest.pool, "c1", datetime.now(UTC), run_id=RUN, cost=1)
    await insert_call(rest.pool, "c2", datetime.now(UTC), run_id=RUN, cost=1, kind="retry")
    money, pipeline = [
        (await rest.get(path, headers=PAGE)).body
        for path in ("/console/money", "/console/pipelines/greet")
    ]

    assert "<b>$2.00</b>" in alone
    assert "0 calls; $0 (0\N{NO-BREAK SPACE}%) went to speculation, retries and cascades" in alone
    assert "<b>$4.00</b>" in money
    assert (
        "2 calls; $1.00 (25\N{NO-BREAK SPACE}%) went to speculation, retries and cascades" in money
    )
    assert ("greet / hello: retry", "1", "$1.00") in [row[:3] for row in cells_of(money)]
    tables = [row[:3] for row in cells_of(money)]
    assert ("greet / hello", "2", "$4.00") in tables
    assert ("tool", "0", "$2.00") in tables
    assert not any("hello: tool" in row[0] for row in cells_of(money) if row)
    assert ("hello", "$4.00", "$1.00") in [row[:3] for row in cells_of(pipeline)]


async def test_the_list_of_pipelines_says_what_the_page_of_each_says(rest: Rest) -> None:
    await spend(rest)
    await insert_step(rest.pool, RUN, "hello", datetime.now(UTC) - timedelta(seconds=1))
    await rest.pool.execute("""UPDATE hocket.step SET facts = '{"charged_usd": "2"}'""")
    await insert_call(rest.pool, "http:1", datetime.now(UTC), run_id=RUN, cost=8)
    await insert_call(rest.pool, "long ago", datetime.now(UTC) - timedelta(days=9), cost=60)

    rows = cells_of((await rest.get("/console/pipelines", headers=PAGE)).body)
    page = (await rest.get("/console/pipelines/greet", headers=PAGE)).body

    (listed,) = [row for row in rows if row and row[0] == "greet"]
    assert listed[5:6] + listed[8:] == ("1", "$14.50")
    nodes = cells_of(page.partition("Where money goes")[2].partition("</table>")[0])
    assert [row[1] for row in nodes if row] == ["$14.00", "$0.50"]


async def test_the_shares_of_a_table_are_of_all_that_it_is_about(rest: Rest) -> None:
    for number in range(10):
        await insert_call(rest.pool, f"n{number}", NOW, node=f"n{number}", cost=1)
    await insert_call(rest.pool, "theirs", NOW, tenant="acme", cost=30)
    money, pipeline = [
        (await rest.get(path, headers=PAGE)).body
        for path in ("/console/money", "/console/pipelines/greet")
    ]

    shares = {row[0]: row[3] for row in cells_of(money.partition("By tenant")[2]) if row}
    assert shares == {"acme": "75 %", "default": "25 %"}
    nodes = cells_of(pipeline.partition("Where money goes")[2].partition("</table>")[0])
    assert [row[3] for row in nodes if row] == ["10 %"] * 8


async def test_each_day_of_the_period_has_a_bar_that_says_what_it_cost(rest: Rest) -> None:
    today = datetime.now(UTC)
    for number, (age, cost, kind) in enumerate(((0, 3, "call"), (0, 1, "retry"), (2, 8, "call"))):
        at = today - timedelta(days=age)
        await insert_call(rest.pool, f"d{number}", at, cost=cost, kind=kind)
    page = (await rest.get("/console/money?days=7", headers=PAGE)).body

    said = re.findall(r"<title>(\d{4}-\d\d-\d\d: [^<]*)</title>", page)
    days = [f"{today - timedelta(days=age):%Y-%m-%d}" for age in range(6, -1, -1)]
    assert [one[:10] for one in said] == days
    assert said[4:] == [
        f"{days[4]}: $8.00",
        f"{days[5]}: $0",
        f"{days[6]}: $4.00, $1.00 of it speculation, retries and cascades",
    ]
    assert f"at most $8.00, on {days[4]}" in page
    assert "<title>20" not in (await rest.get("/console/money?days=1", headers=PAGE)).body
