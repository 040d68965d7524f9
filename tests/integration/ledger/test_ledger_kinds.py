"""What the ledger keeps beside the cost of a call: prices, what has none, and shares of replicas."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool
from hocket.ledger.spent import spent
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups
from hocket.schemas.messages import Attribution, SpentAsked
from support.ledger_rig import STARTED_MS, drained, encoded, publish, record, running_ledger

DAY = datetime.fromtimestamp(STARTED_MS / 1000, UTC)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=2, name="test")
    yield pool
    await pool.close()


async def test_each_price_is_noted_from_its_first_call_on_and_no_price_is_seen(
    bus: Bus, pool: asyncpg.Pool
) -> None:
    def call(number: int, usd: str, **fields: object) -> object:
        moment = {"started_at_ms": STARTED_MS + 1_000 * number}
        return record(f"c{number}", **{"input_usd_per_mtok": Decimal(usd), **moment, **fields})

    batches = [
        [call(1, "1"), call(2, "1"), call(3, "1", cached_usd_per_mtok=Decimal("0.1"))],
        [call(4, "2"), call(5, "1"), call(6, "1", attribution=Attribution(tenant="acme"))],
        [call(7, "0", unpriced=True, cost_usd=0, input_tokens=9), call(8, "0", cost_usd=0)],
    ]
    async with running_ledger(bus, pool):
        for batch in batches:
            await publish(bus, encoded(*batch))  # type: ignore[arg-type]
            await drained(bus)
    rows = await pool.fetch("SELECT * FROM report.prices ORDER BY effective_from")
    assert [
        (
            (row["effective_from"].timestamp() * 1000 - STARTED_MS) // 1_000,
            row["tenant"],
            row["input_usd_per_mtok"],
            row["cached_usd_per_mtok"],
            row["currency"],
        )
        for row in rows
    ] == [
        (1, "default", 1, None, "USD"),
        (3, "default", 1, Decimal("0.1"), "USD"),
        (4, "default", 2, None, "USD"),
        (6, "acme", 1, None, "USD"),
    ]
    (unpriced,) = await pool.fetch("SELECT calls, input_tokens FROM report.unpriced_calls")
    assert tuple(unpriced) == (1, 9)
    assert await pool.fetchval("SELECT sum(unpriced) FROM report.ledger") == 1


async def test_what_a_shared_backend_cost_is_shared_by_the_time_of_the_calls(
    pool: asyncpg.Pool,
) -> None:
    await pool.execute(
        """INSERT INTO hocket.warm_time (record_id, backend, model, from_at, to_at, busy_ms, idle_ms,
           provisioned_ms, cost_usd, wasted_usd)
           SELECT 'w' || n, 'gpu', 'm', $1::timestamptz, $1::timestamptz, 40000, 50000, 10000, 1, 0.6
           FROM generate_series(1, 3) n
           UNION ALL
           SELECT 'unused', 'spare', 'm', $1::timestamptz, $1::timestamptz, 0, 1000, 0, 0.25, 0.25""",
        DAY,
    )
    await pool.execute("SELECT hocket.cover_usage($1, 1)", DAY)
    used = {("acme", f"p{number}"): 1_000 * number * number for number in range(1, 6)}
    used["rival", "p1"] = 12_345
    for number, ((tenant, pipeline), ms) in enumerate(used.items()):
        await pool.execute(
            "INSERT INTO hocket.usage (call_id, tenant, pipeline, model, backend, status, started_at,"
            " latency_ms) SELECT $1 || n, $2, $3, 'm', 'gpu', 'ok', $4, $5"
            " FROM generate_series(1, 2) n",
            f"c{number}:",
            tenant,
            pipeline,
            DAY,
            ms / 2,
        )
    rows = await pool.fetch("SELECT * FROM report.shared_cost WHERE backend = 'gpu'")
    together = sum(used.values())
    assert len(rows) == len(used)
    for row in rows:
        share = Fraction(used[row["tenant"], row["pipeline"]], together)
        for column, whole in (
            ("share", 1),
            ("busy_s", 120),
            ("idle_s", 180),
            ("busy_usd", Fraction(12, 10)),
            ("idle_usd", Fraction(18, 10)),
        ):
            assert float(row[column]) == pytest.approx(float(whole * share), rel=1e-12), column
    (spare,) = await pool.fetch("SELECT * FROM report.shared_cost WHERE backend = 'spare'")
    assert (spare["tenant"], spare["pipeline"], spare["idle_usd"]) == (None, None, Decimal("0.25"))
    told = await pool.fetch(
        "SELECT kind, sum(cost_usd) AS usd FROM report.ledger WHERE unit = 'seconds' GROUP BY kind"
    )
    assert {row["kind"]: float(row["usd"]) for row in told} == pytest.approx(
        {"gpu_seconds": 1.2, "warm_idle": 2.05}
    )


async def saved_by_repeats(pool: asyncpg.Pool) -> dict[str, tuple[int, Decimal]]:
    """Return the steps that repeated runs took over, and what that saved, by node."""
    rows = await pool.fetch("SELECT * FROM report.ledger WHERE kind = 'replay_saving'")
    return {row["node"]: (row["quantity"], row["saved_usd"]) for row in rows}


@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "deleted"])
async def test_a_repeat_saved_the_charges_and_the_sub_runs_of_what_it_took_over(
    pool: asyncpg.Pool, deleted: bool
) -> None:
    await pool.execute(
        """INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
               input, accepted_at, deadline_at, finished_at, parent)
           SELECT id, 0, tenant, 'report', 1, 'succeeded', 'standard', '{}', now(), now(), now(),
               parent::jsonb
           FROM (VALUES ('old', 'acme', NULL), ('again', 'acme', NULL), ('third', 'acme', NULL),
                        ('sub', 'acme', '{"run_id": "old", "step": "ask"}'),
                        ('below', 'acme', '{"run_id": "sub", "step": "deep"}'),
                        ('not taken', 'acme', '{"run_id": "old", "step": "other"}'),
                        ('theirs', 'rival', '{"run_id": "old", "step": "ask"}')) r(id, tenant, parent)"""
    )
    await pool.execute(
        """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
               finished_at, took_ms, facts)
           SELECT run, key, key, 'x', role, 'succeeded', 1, now(), now(), 1, facts::jsonb
           FROM (VALUES ('old', 'look', 'leaf', '{"charged_usd": "0.5"}'),
                        ('below', 'look', 'leaf', '{"charged_usd": "0.25"}')) s(run, key, role, facts)
           UNION ALL
           SELECT run, key, key, 'x', role, 'succeeded', 1, now(), now(), NULL,
               jsonb_build_object('source', jsonb_build_object(
                   'kind', 'run', 'run_id', 'old', 'step', key))
           FROM unnest(ARRAY['again', 'third']) run,
                (VALUES ('look', 'leaf'), ('ask', 'subrun')) s(key, role)"""
    )
    await pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, step, model,"
        " backend, status, cost_usd, started_at, latency_ms) SELECT 'of ' || run_id, tenant, 'report',"
        " 1, run_id, 'draft', 'draft', 'm', 'b', 'ok', 2, now(), 1 FROM hocket.run"
        " WHERE parent IS NOT NULL"
    )
    if deleted:
        await pool.execute("UPDATE hocket.step SET facts = NULL WHERE run_id = 'old'")
        await pool.execute(
            "INSERT INTO hocket.kept_charge (run_id, key, tenant, pipeline, version, node, cost_usd,"
            " finished_at) VALUES ('old', 'look', 'acme', 'report', 1, 'look', 0.5, now())"
        )

    # each of the two: what the step charged, and two calls and a charge in sub-runs
    assert await saved_by_repeats(pool) == {
        "look": (2, Decimal("1.0")),
        "ask": (2, 2 * Decimal("4.25")),
    }


async def test_steps_that_a_repeat_took_over_saved_what_their_calls_cost(
    pool: asyncpg.Pool,
) -> None:
    for run_id in ("old", "new"):
        await pool.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
            " input, accepted_at, deadline_at) VALUES ($1, 0, 'acme', 'report', 1, 'running',"
            " 'standard', '{}', now(), now())",
            run_id,
        )
    await pool.execute(
        """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at, finished_at,
           took_ms, facts) VALUES
           ('new', 'draft', 'draft', 'llm', 'leaf', 'succeeded', 1, now(), now(), NULL,
            '{"source": {"kind": "run", "run_id": "old", "step": "draft"}}'),
           ('new', 'look', 'look', 'sql', 'leaf', 'succeeded', 1, now(), now(), 1500, NULL)"""
    )
    await pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, step, model,"
        " backend, status, cost_usd, started_at, latency_ms) SELECT 'c' || n, 'acme', 'report', 1,"
        " 'old', 'draft', 'draft', 'm', 'b', 'ok', 0.125, now(), 1 FROM generate_series(1, 2) n"
    )
    assert await saved_by_repeats(pool) == {"draft": (1, Decimal("0.25"))}
    rows = await pool.fetch("SELECT * FROM report.ledger")
    found = {row["kind"]: (row["quantity"], row["cost_usd"], row["saved_usd"]) for row in rows}
    assert found == {
        "call": (0, Decimal("0.25"), 0),
        "tool": (Decimal("1.5"), None, 0),
        "replay_saving": (1, 0, Decimal("0.25")),
    }


@pytest.mark.parametrize("rolled_up", [False, True])
async def test_what_tools_charged_counts_in_every_report_of_costs(
    pool: asyncpg.Pool, rolled_up: bool
) -> None:
    at = datetime.now(UTC) - timedelta(days=1)
    await pool.execute("SELECT hocket.cover_usage($1, 1)", at)
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, finished_at, labels) SELECT 'r' || n, 0, 'acme', 'p' || n,"
        " 1, 'succeeded', 'standard', '{}', $1, $1, $1, '{\"team\": \"search\"}'"
        " FROM generate_series(1, 2) n",
        at,
    )
    await pool.execute(
        """INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,
           finished_at, took_ms, facts)
           SELECT run, key, key, type, 'leaf', 'succeeded', 1, $1, $1, 10, facts::jsonb
           FROM (VALUES ('r1', 'look', 'http', '{"charged_usd": "0.02"}'),
                        ('r1', 'find', 'mcp', '{"charged_usd": "0.005"}'),
                        ('r1', 'free', 'sql', NULL),
                        ('r2', 'look', 'own', '{"charged_usd": "0.4"}')) AS s(run, key, type, facts)""",
        at,
    )
    await pool.execute(
        "INSERT INTO hocket.usage (call_id, tenant, pipeline, version, run_id, node, step, model,"
        " backend, status, cost_usd, started_at, latency_ms, labels) VALUES ('c', 'acme', 'p1', 1,"
        " 'r1', 'draft', 'draft', 'm', 'b', 'ok', 0.125, $1, 1, '{\"team\": \"search\"}')",
        at,
    )
    if rolled_up:
        await Rollups(pool, RollupMetrics(CollectorRegistry())).make_pass(rest=0)
        assert not await pool.fetchval("SELECT count(*) FROM hocket.dirty_day")
    p1, p2 = Decimal("0.15"), Decimal("0.4")

    async def told(query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in await pool.fetch(query)]

    assert await told(
        "SELECT pipeline, calls, runs, cost_usd FROM report.cost_by_pipeline_day ORDER BY 1"
    ) == [("p1", 1, 1, p1), ("p2", 0, 1, p2)]
    assert await told("SELECT calls, runs, cost_usd FROM report.cost_by_tenant") == [
        (1, 2, p1 + p2)
    ]
    by_label = "SELECT value, pipeline, calls, cost_usd FROM report.cost_by_label ORDER BY 2"
    assert await told(by_label) == [("search", "p1", 1, p1), ("search", "p2", 0, p2)]
    by_kind = "SELECT node, kind, calls, cost_usd FROM report.cost_by_kind ORDER BY 1, 4"
    pieces = [
        ("draft", "call", 1, Decimal("0.125")),
        ("find", "tool", 1, Decimal("0.005")),
        ("look", "tool", 1, Decimal("0.02")),
        ("look", "tool", 1, p2),
    ]
    assert await told(by_kind) == pieces
    by_node = "SELECT node, model, calls, cost_usd FROM report.cost_by_node ORDER BY 1, 4"
    assert await told(by_node) == [
        (node, "m" if kind == "call" else None, calls, usd) for node, kind, calls, usd in pieces
    ]
    by_run = "SELECT run_id, calls, cost_usd FROM report.cost_by_run ORDER BY 1"
    assert await told(by_run) == [("r1", 1, p1), ("r2", 0, p2)]
    in_all = ("cost_by_outcome", "unit_cost", "ledger", "month_forecast")
    of_the_week = "usd_per_day * (7 + extract(epoch FROM (now() AT TIME ZONE 'UTC')::time) / 86400)"
    sums = [
        await pool.fetchval(
            f"SELECT sum({of_the_week if name == 'month_forecast' else 'cost_usd'})"
            f" FROM report.{name}"
        )
        for name in in_all
    ]
    assert [round(one, 6) for one in sums] == [p1 + p2] * len(in_all)
    for fields, usd in (
        ({}, p1 + p2 - Decimal("0.125")),
        ({"pipeline": "p1"}, Decimal("0.025")),
        ({"labels": {"team": "search"}}, Decimal("0.425")),
        ({"labels": {"team": "other"}}, 0),
        ({"since_ms": at.timestamp() * 1000 + 1}, 0),
    ):
        asked = SpentAsked.model_validate({"tenant": "acme", "tools": True, **fields})
        assert (await spent(pool, asked)).tools_usd == usd, fields


async def test_what_a_suspended_step_charged_counts_when_it_was_charged_and_in_no_later_period(
    pool: asyncpg.Pool,
) -> None:
    at = datetime.now(UTC) - timedelta(hours=5)
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ('r', 0, 'acme', 'p', 1, 'running', 'standard', '{}', $1, $1)",
        at,
    )
    await pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,"
        " dispatched_at, facts) VALUES ('r', 'ask', 'ask', 'own', 'leaf', 'waiting', 1, $1, $1,"
        ' \'{"charged_usd": "7"}\')',
        at,
    )
    await pool.execute(
        "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)"
        " VALUES ('r', 'ask', 1, 'suspended', $1)",
        at + timedelta(minutes=90),
    )
    for minutes, usd in ((0, 7), (89, 7), (91, 0)):
        since_ms = (at + timedelta(minutes=minutes)).timestamp() * 1000
        asked = SpentAsked(tenant="acme", tools=True, since_ms=since_ms)
        assert (await spent(pool, asked)).tools_usd == usd, minutes


async def test_a_period_has_of_a_suspended_step_only_what_its_attempts_since_then_charged(
    pool: asyncpg.Pool,
) -> None:
    at = datetime.now(UTC) - timedelta(hours=5)
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at)"
        " VALUES ('r', 0, 'acme', 'p', 1, 'running', 'standard', '{}', $1, $1)",
        at,
    )
    await pool.execute(
        "INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at,"
        " dispatched_at, facts) VALUES ('r', 'ask', 'ask', 'own', 'leaf', 'waiting', 4, $1, $1,"
        """ '{"charged_usd": "8", "counted": [[0, 0, "2"], [0, -1, "1"], [2, 1, "3"], [3, 1, "4"]]}')""",
        at,
    )
    for attempt in (1, 2, 3):  # the first is among what was forgotten, and added up
        await pool.execute(
            "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)"
            " VALUES ('r', 'ask', $1, 'suspended', $2)",
            attempt,
            at + timedelta(hours=attempt),
        )
    # the last may have made calls for 1 USD: it has charged 4 at most
    for minutes, usd in ((0, 8), (119, 8), (121, 4), (179, 4), (181, 0)):
        since_ms = (at + timedelta(minutes=minutes)).timestamp() * 1000
        asked = SpentAsked(tenant="acme", tools=True, since_ms=since_ms)
        assert (await spent(pool, asked)).tools_usd == usd, minutes


async def test_a_runs_budget_is_used_up_by_its_steps_and_by_calls_of_the_http_door_alike(
    pool: asyncpg.Pool,
) -> None:
    runs = {"top": (1, None), "below": (None, "top"), "other": (1, None)}
    for run_id, (budget, parent) in runs.items():
        await pool.execute(
            "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
            " input, accepted_at, deadline_at, budget_usd, spent_usd, parent) VALUES ($1, 0, 'acme',"
            " $1, 1, 'running', 'standard', '{}', now(), now(), $2, 0.25, CASE WHEN $3::text IS NOT NULL"
            " THEN jsonb_build_object('run_id', $3::text) END)",
            run_id,
            budget,
            parent,
        )
    calls = (
        ("http:1", "acme", "top"),
        ("http:2", "acme", "below"),
        ("http:3", "rival", "top"),
        ("of-a-step", "acme", "top"),
    )
    for call_id, tenant, run_id in calls:
        await pool.execute(
            "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd,"
            " started_at, latency_ms) VALUES ($1, $2, $3, 'm', 'b', 'ok', 0.375, now(), 1)",
            call_id,
            tenant,
            run_id,
        )
    rows = await pool.fetch("SELECT pipeline, mean_burn, runs_exhausted FROM report.run_budgets")
    assert sorted(map(tuple, rows)) == [("other", Decimal("0.25"), 0), ("top", 1, 1)]


async def test_a_former_runs_calls_of_the_http_door_use_up_no_budget_of_the_one_with_its_id(
    pool: asyncpg.Pool,
) -> None:
    await pool.execute(
        "INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,"
        " input, accepted_at, deadline_at, budget_usd, spent_usd) VALUES ('again', 0, 'acme', 'p', 1,"
        " 'running', 'standard', '{}', now(), now(), 1, 0.25)"
    )
    for days in (0, 31):
        await pool.execute(
            "INSERT INTO hocket.usage (call_id, tenant, run_id, model, backend, status, cost_usd,"
            " started_at, latency_ms) VALUES ('http:1', 'acme', 'again', 'm', 'b', 'ok', 0.375, $1, 1)",
            datetime.now(UTC) - timedelta(days=days),
        )
    assert await pool.fetchval("SELECT mean_spent_usd FROM report.run_budgets") == Decimal("0.625")
