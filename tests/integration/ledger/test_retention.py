"""What is old goes, a little at a time, and nothing that somebody needs: costs stay as they were."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.kit.blobs import FileBlobs, PostgresBlobs
from hocket.kit.postgres.database import connect_pool
from hocket.kit.process.setting_types import PeriodName
from hocket.kit.process.settings import read
from hocket.ledger.spent import spent
from hocket.ledger.upkeep import day_partitions, retention, tenant_periods
from hocket.ledger.upkeep import janitor as janitor_module
from hocket.ledger.upkeep.janitor import Janitor, JanitorMetrics
from hocket.ledger.upkeep.retention import Periods
from hocket.ledger.upkeep.tenant_periods import TenantPeriods
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import SpentAsked
from support.ledger_rig import until

PERIODS = Periods(runs=30, rejected=7, usage=400, durations=180, blobs=220)
COSTS = "SELECT kind, calls, cost_usd FROM report.cost_by_kind ORDER BY kind"


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(database_url, size=4, name="retention")
    await pool.execute("INSERT INTO hocket.partition (partition) VALUES (0), (1)")
    yield pool
    await pool.close()


@pytest.fixture
def janitor(pool: asyncpg.Pool) -> Janitor:
    return Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry()))


def ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


async def add_run(
    pool: asyncpg.Pool,
    run_id: str,
    ended_days_ago: float | None,
    *,
    status: str = "succeeded",
    partition: int = 0,
    parent: str | None = None,
    origin: str | None = None,
    steps: int = 2,
) -> None:
    await pool.execute(
        """
        INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input,
            accepted_at, deadline_at, finished_at, parent, facts)
        VALUES ($1, $2, 'acme', 'p', 1, $3, 'standard', '{}', now() - interval '500 days', now(), $4,
            CASE WHEN $5::text IS NOT NULL THEN jsonb_build_object('run_id', $5::text, 'step', 's0') END,
            CASE WHEN $6::text IS NOT NULL
                THEN jsonb_build_object('origin', jsonb_build_object('run_id', $6::text)) END)
        """,
        run_id,
        partition,
        status,
        None if ended_days_ago is None else ago(ended_days_ago),
        parent,
        origin,
    )
    await pool.executemany(
        """
        INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, ready_at)
        VALUES ($1, $2, $2, 'llm', 'node', 'succeeded', 2, now())
        """,
        [(run_id, f"s{number}") for number in range(steps)],
    )
    await pool.execute(
        """
        INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at)
        VALUES ($1, 's0', 1, 'failed', now())
        """,
        run_id,
    )


async def add_call(
    pool: asyncpg.Pool, call_id: str, run_id: str, *, attempt: int = 1, days: float = 40
) -> None:
    await pool.execute(
        """
        INSERT INTO hocket.usage (call_id, tenant, pipeline, run_id, step, attempt, model, backend,
            status, cost_usd, started_at, latency_ms, recorded_at)
        VALUES ($1, 'acme', 'p', $2, 's0', $3, 'm', 'b', 'ok', 0.5, $4, 1, $4)
        """,
        call_id,
        run_id,
        attempt,
        ago(days),
    )


def set_back(folder: Path, *, days: float) -> None:
    at_s = time.time() - days * 86_400
    for path in folder.rglob("*"):
        if path.is_file():
            os.utime(path, (at_s, at_s))


async def runs(pool: asyncpg.Pool) -> set[str]:
    return {row["run_id"] for row in await pool.fetch("SELECT run_id FROM hocket.run")}


async def test_ended_runs_go_after_their_time_with_all_that_is_theirs(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await add_run(pool, "old", 31)
    await add_run(pool, "old-elsewhere", 31, partition=1, status="failed")
    await add_run(pool, "young", 29)
    await add_run(pool, "running", None, status="running")
    await add_run(pool, "refused", 8, status="rejected")
    await add_run(pool, "just-refused", 6, status="rejected")

    passed = await janitor.make_pass()

    assert passed is not None
    assert (passed["runs"], passed["rejected"]) == (2, 1)
    assert await runs(pool) == {"young", "running", "just-refused"}
    assert await pool.fetchval("SELECT count(*) FROM hocket.step") == 6
    assert await pool.fetchval("SELECT count(*) FROM hocket.attempt") == 3


async def test_what_a_run_cost_and_why_stays_when_it_goes(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await add_run(pool, "old", 31)
    await add_call(pool, "first", "old", attempt=1)  # its attempt failed and was made again
    await add_call(pool, "second", "old", attempt=2)
    before = [tuple(row) for row in await pool.fetch(COSTS)]

    await janitor.make_pass()

    assert await runs(pool) == set()
    after = [tuple(row) for row in await pool.fetch(COSTS)]
    assert before == after
    assert [row[0] for row in after] == ["call", "retry"]


async def test_what_tools_charged_stays_when_their_runs_go(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await add_run(pool, "old", 31, steps=3)
    await pool.execute("""UPDATE hocket.run SET labels = '{"team": "search"}'""")
    await pool.execute(
        """UPDATE hocket.step SET type = 'http', role = 'leaf', took_ms = 1500, finished_at = $1,
        facts = '{"charged_usd": "0.02"}' WHERE key <> 's2'""",
        ago(31),
    )

    async def told() -> dict[str, object]:
        """The reports that count charges, and what budgets are told."""
        of = {"since_ms": ago(40).timestamp() * 1000, "labels": {"team": "search"}}
        asked = SpentAsked.model_validate({"tenant": "acme", "tools": True, "pipeline": "p", **of})
        found: dict[str, object] = {"spent": (await spent(pool, asked)).tools_usd}
        for report in ("by_kind", "by_tenant", "by_label", "by_node", "by_pipeline_day"):
            rows = await pool.fetch(f"SELECT * FROM report.cost_{report}")
            found[report] = [tuple(row) for row in rows]
        rows = await pool.fetch("SELECT entries, quantity, cost_usd, unpriced FROM report.ledger")
        found["ledger"] = [tuple(row) for row in rows]
        row = await pool.fetchrow("SELECT run_id, cost_usd, pipeline FROM report.cost_by_run")
        return {**found, "run": row and tuple(row)}

    before = await told()
    assert before["spent"] == Decimal("0.04")
    assert before["ledger"] == [(1, 1.5, Decimal("0.02"), 0)] * 2
    assert before["run"] == ("old", Decimal("0.04"), "p")

    await janitor.make_pass()
    assert await runs(pool) == set()
    assert await told() == before

    await pool.execute("UPDATE hocket.kept_charge SET finished_at = $1", ago(401))
    passed = await janitor.make_pass()
    assert passed is not None
    assert passed["charges"] == 2
    after = await told()
    assert (after["spent"], after["ledger"], after["by_kind"], after["run"]) == (0, [], [], None)


async def test_what_tools_charged_stays_of_each_run_that_one_key_has_begun(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    for days in (62, 31):
        await add_run(pool, "monthly", days, steps=1)
        await pool.execute(
            "UPDATE hocket.step SET type = 'http', role = 'leaf', finished_at = $1,"
            """ facts = '{"charged_usd": "0.02"}'""",
            ago(days),
        )
        await janitor.make_pass()
        assert await runs(pool) == set()
    assert await pool.fetchval("SELECT sum(cost_usd) FROM report.cost_by_tenant") == Decimal("0.04")
    await add_run(pool, "monthly", None, status="running", steps=1)
    await pool.execute("UPDATE hocket.run SET accepted_at = $1", ago(1))
    of_runs = "SELECT cost_usd FROM report.cost_by_run WHERE run_id = 'monthly' AND "
    cost = of_runs + "status NOT IN ('deleted', 'external')"
    former = of_runs + "status = 'external'"  # only an id that Hocket made is told as deleted
    assert await pool.fetchval(cost) == 0
    await pool.execute(
        "UPDATE hocket.step SET type = 'http', role = 'leaf', finished_at = now(),"
        """ facts = '{"charged_usd": "0.01"}'"""
    )
    assert await pool.fetchval(cost) == Decimal("0.01")
    assert await pool.fetchval(former) == Decimal("0.04")


async def test_a_run_that_is_repeated_since_the_pass_began_stays(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "REPEATED", "SELECT NULL::text WHERE false")  # before it began
    await add_run(pool, "again", None, status="running", origin="origin")
    for run_id in ("origin", "other"):
        await add_run(pool, run_id, 99)
    await janitor.make_pass()
    assert await runs(pool) == {"again", "origin"}
    steps = "SELECT count(*) FROM hocket.step WHERE run_id = 'origin'"
    assert await pool.fetchval(steps) == 2


async def test_nothing_goes_that_a_run_in_flight_needs(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await add_run(pool, "parent", None, status="running")
    await add_run(pool, "child", 99, parent="parent")
    await add_run(pool, "again", None, status="running", origin="origin")
    await add_run(pool, "origin", 99)
    await add_run(pool, "ended-parent", 31)
    await add_run(pool, "late-child", 29, parent="ended-parent")
    everything = await runs(pool)

    await janitor.make_pass()
    assert await runs(pool) == everything

    await pool.execute(
        "UPDATE hocket.run SET status = 'succeeded', finished_at = $1 WHERE status = 'running'",
        ago(31),
    )
    await pool.execute(
        "UPDATE hocket.run SET finished_at = $1 WHERE run_id = 'late-child'", ago(31)
    )
    await janitor.make_pass()
    await janitor.make_pass()  # parents after their children
    assert await runs(pool) == set()


async def test_a_rejected_run_that_begins_anew_while_it_is_deleted_keeps_its_steps(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task came again, with the same key."""
    for run_id in ("r-again", "r-old"):
        await add_run(pool, run_id, 8, status="rejected")
    name_spending = retention.name_spending

    async def beginning(connection: asyncpg.Connection, ids: list[str]) -> None:
        await name_spending(connection, ids)
        await pool.execute(
            "UPDATE hocket.run SET status = 'running', finished_at = NULL WHERE run_id = 'r-again'"
        )

    monkeypatch.setattr(retention, "name_spending", beginning)
    await janitor.make_pass()
    assert await runs(pool) == {"r-again"}
    assert await pool.fetchval("SELECT count(*) FROM hocket.step") == 2
    assert await pool.fetchval("SELECT count(*) FROM hocket.attempt") == 1


async def test_a_run_of_very_many_steps_goes_in_statements_that_are_short(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_run(pool, "huge", 31, steps=25_000)
    statements: list[tuple[float, int]] = []
    done = retention._done

    async def timed(
        connection: asyncpg.Connection, statement: str, *values: object, timeout_s: float = 5.0
    ) -> int:
        began_s = time.perf_counter()
        rows = await done(connection, statement, *values, timeout_s=timeout_s)
        statements.append((time.perf_counter() - began_s, rows))
        return rows

    monkeypatch.setattr(retention, "_done", timed)
    monkeypatch.setattr(janitor_module, "PAUSE_S", 0.0)
    await janitor.make_pass()

    assert await runs(pool) == set()
    assert max(rows for _, rows in statements) == retention.MAX_ROWS
    assert max(seconds for seconds, _ in statements) < retention.STATEMENT_TIMEOUT_S / 2


async def test_the_ledger_estimates_and_blobs_go_by_periods_of_their_own(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await add_call(pool, "ancient", "gone", days=401)
    await add_call(pool, "kept", "gone", days=399)
    await pool.executemany(
        "INSERT INTO hocket.duration VALUES ('acme', $1, 'n', 1, 1, 1, $2)",
        [("unused", ago(181)), ("used", ago(179))],
    )
    await pool.executemany(
        "INSERT INTO hocket.outlook VALUES (0, 'acme', $1, 'n', 1, 1, 1)",
        [("unused",), ("used",)],
    )
    blobs = PostgresBlobs(pool)
    stored = [await blobs.put("acme", word) for word in (b"unused", b"read", b"stored again")]
    await pool.execute("UPDATE hocket.tenant_blob SET created_at = $1", ago(221))
    await blobs.get("acme", stored[1].hash)
    await blobs.put("acme", b"stored again")

    passed = await janitor.make_pass()

    assert passed is not None
    assert passed["usage"] == passed["blobs"] == passed["durations"] == 1
    assert await pool.fetchval("SELECT string_agg(call_id, ',') FROM hocket.usage") == "kept"
    for table in ("duration", "outlook"):
        query = f"SELECT string_agg(pipeline, ',') FROM hocket.{table}"
        assert await pool.fetchval(query) == "used"
    assert await blobs.get("acme", stored[1].hash) == b"read"
    assert await pool.fetchval("SELECT count(*) FROM hocket.tenant_blob") == 2


async def test_blobs_in_files_go_when_nobody_used_them(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    stored = [await blobs.put("acme", word) for word in (b"unused", b"read", b"stored again")]
    set_back(tmp_path, days=221)
    await blobs.get("acme", stored[1].hash)
    await blobs.put("acme", b"stored again")
    assert await blobs.remove_unused(220) == 1
    assert await blobs.get("acme", stored[2].hash) == b"stored again"
    assert await blobs.remove_unused(220) == 0


async def test_blobs_in_files_go_by_the_clock_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    assert await blobs.remove_unused(220) == 0, "there is no folder yet"
    stored = [await blobs.put("acme", word) for word in (b"young", b"read")]
    set_back(tmp_path, days=100)
    now_s = time.time()
    monkeypatch.setattr("hocket.kit.blobs.time.time", lambda: now_s + 300 * 86_400)
    assert await blobs.remove_unused(220) == 0
    monkeypatch.setattr("hocket.kit.blobs.time.time", lambda: now_s - 300 * 86_400)
    await blobs.get("acme", stored[1].hash)
    assert await blobs.remove_unused(50) == 1, "what was read has the time of the disk"


async def test_a_kind_that_cannot_be_deleted_does_not_keep_the_others(
    janitor: Janitor, pool: asyncpg.Pool
) -> None:
    """Something of an operator's refuses the deletion of runs: blobs go all the same."""
    await add_run(pool, "r1", 31)
    await pool.execute(
        """
        CREATE TABLE public.noted (run_id text REFERENCES hocket.run);
        INSERT INTO public.noted VALUES ('r1');
        INSERT INTO hocket.tenant_blob (tenant, hash, data, created_at)
        VALUES ('acme', repeat('a', 64), '', now() - interval '221 days')
        """
    )
    passed = await janitor.make_pass()
    assert passed is not None
    assert (passed["runs"], passed["blobs"]) == (0, 1)
    late = "SELECT kind FROM report.retention WHERE last_pass_at < now() - interval '1 day'"
    assert [row["kind"] for row in await pool.fetch(late)] == ["runs"]
    await pool.execute("DROP TABLE public.noted")
    passed = await janitor.make_pass()
    assert passed is not None
    assert (passed["runs"], passed["blobs"]) == (1, 0)
    assert not await pool.fetch(late)


async def test_one_ledger_at_a_time_makes_a_pass_and_says_what_it_did(
    pool: asyncpg.Pool, janitor: Janitor
) -> None:
    await add_run(pool, "old", 31)
    async with pool.acquire() as another:
        await another.execute(janitor_module.TAKE)
        assert await janitor.make_pass() is None
        assert await runs(pool) == {"old"}
        await another.execute(janitor_module.LEAVE)
    both = await asyncio.gather(janitor.make_pass(), janitor.make_pass())
    assert any(passed and passed["runs"] == 1 for passed in both)
    row = await pool.fetchrow("SELECT days, deleted FROM report.retention WHERE kind = 'runs'")
    assert tuple(row) == (30, 1)


async def test_a_session_that_could_not_be_cleaned_up_does_not_come_back(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "STATEMENT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(retention, "MAY_NOT_DELETE", "SELECT pg_sleep(30)")
    with pytest.raises(TimeoutError):
        await janitor.make_pass()

    async def is_free() -> bool:  # once the server has noticed that the client is gone
        free = f"SELECT pg_try_advisory_xact_lock({janitor_module.LOCK})"
        return bool(await pool.fetchval(free))

    await until(is_free)
    held = await asyncio.gather(
        *(pool.fetchval("SELECT current_setting('hocket.deletes', true)") for _ in range(4))
    )
    assert "on" not in held


async def test_a_period_of_nought_days_is_for_ever(pool: asyncpg.Pool) -> None:
    await add_run(pool, "old", 9_999)
    await pool.execute(
        "INSERT INTO hocket.retention (kind, days, deleted, last_pass_at) VALUES ('runs', 30, 1, now())"
    )
    others = {"refused": 0, "keys": 0, "operations": 0}
    periods = Periods(runs=0, rejected=0, usage=0, durations=0, blobs=0, **others)
    await Janitor(pool, periods, JanitorMetrics(CollectorRegistry())).make_pass()
    assert await runs(pool) == {"old"}
    assert not await pool.fetch("SELECT FROM report.retention")


async def test_runs_with_too_many_calls_for_one_statement_are_taken_one_by_one(
    pool: asyncpg.Pool, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await add_run(pool, name, 31)
        await add_call(pool, f"call-{name}", name)
    slow = (
        "UPDATE hocket.usage SET kind = 'retry' FROM pg_sleep(0.3) WHERE run_id = ANY ($1::text[])"
    )
    monkeypatch.setattr(retention, "NAME_SPENDING", slow)
    monkeypatch.setattr(retention, "STATEMENT_TIMEOUT_S", 0.2)
    await janitor.make_pass()
    assert await runs(pool) == set()
    assert await pool.fetchval("SELECT count(*) FROM hocket.usage WHERE kind = 'retry'") == 3


async def test_a_tenant_may_keep_its_data_for_a_shorter_time_than_all(pool: asyncpg.Pool) -> None:
    await add_run(pool, "old", 8)
    await add_run(pool, "young", 6)
    await add_run(pool, "of-another", 8)
    await pool.execute("UPDATE hocket.run SET tenant = 'rival' WHERE run_id = 'of-another'")
    for name, days in (("old", 8), ("young", 6), ("of-another", 8), ("before", 91), ("after", 89)):
        await add_call(pool, f"call-{name}", name, days=days)
    await pool.execute("UPDATE hocket.usage SET tenant = 'rival' WHERE run_id = 'of-another'")
    await pool.executemany(
        """INSERT INTO hocket.kept_charge (run_id, key, tenant, pipeline, version, node, cost_usd,
        finished_at) VALUES ($1, 's', $2, 'p', 1, 's', 1, $3)""",
        [("long-ago", "acme", ago(91)), ("theirs", "rival", ago(91)), ("later", "acme", ago(89))],
    )
    async with pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
    until = datetime.now(UTC).date()
    await pool.execute(
        "CREATE TABLE hocket.content_past PARTITION OF hocket.content"
        f" FOR VALUES FROM (MINVALUE) TO ('{until} 00:00+00')"
    )
    await pool.executemany(
        """INSERT INTO hocket.content (call_id, tenant, model, kept, prompt, answer, started_at, kept_at)
        VALUES ($1, $2, 'm', 'full', '{}', '{}', $3, $3)""",
        [("gone", "acme", ago(1.5)), ("kept", "acme", ago(0.5)), ("theirs", "rival", ago(1.5))],
    )
    shorter = {"acme": {"runs": 7, "usage": 90, "content": 1}}
    janitor = Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry()), shorter)

    passed = await janitor.make_pass()

    assert passed is not None
    assert (passed["runs:acme"], passed["usage:acme"], passed["content:acme"]) == (1, 2, 1)
    assert await runs(pool) == {"young", "of-another"}
    charges = await pool.fetch("SELECT run_id FROM hocket.kept_charge ORDER BY 1")
    assert [row[0] for row in charges] == ["later", "theirs"]
    calls = await pool.fetch("SELECT call_id FROM hocket.usage ORDER BY 1")
    assert [row[0] for row in calls] == ["call-after", "call-of-another", "call-old", "call-young"]
    content = await pool.fetch("SELECT call_id FROM hocket.content ORDER BY 1")
    assert [row[0] for row in content] == ["kept", "theirs"]
    said = "SELECT days, deleted FROM report.retention WHERE kind = 'usage:acme'"
    assert tuple(await pool.fetchrow(said)) == (90, 2)


async def test_a_tenant_whose_runs_cannot_be_deleted_does_not_keep_the_others(
    pool: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_run(pool, "kept", 8)
    await add_run(pool, "of-another", 8)
    await pool.execute("UPDATE hocket.run SET tenant = 'rival' WHERE run_id = 'of-another'")
    await add_call(pool, "call", "kept", days=91)
    delete_runs = tenant_periods._delete_runs

    async def failing(
        connection: asyncpg.Connection, kind: PeriodName, tenant: str, *given: Any
    ) -> int:
        if tenant == "acme":
            raise TimeoutError
        return await delete_runs(connection, kind, tenant, *given)

    monkeypatch.setattr(tenant_periods, "_delete_runs", failing)
    shorter: TenantPeriods = {"acme": {"runs": 7, "usage": 90}, "rival": {"runs": 7}}
    janitor = Janitor(pool, PERIODS, JanitorMetrics(CollectorRegistry()), shorter)
    passed = await janitor.make_pass()
    assert passed is not None
    assert (passed["runs:acme"], passed["usage:acme"], passed["runs:rival"]) == (0, 1, 1)
    assert await runs(pool) == {"kept"}


def test_a_tenants_period_that_is_no_shorter_is_told() -> None:
    given = {"acme": {"runs": 30, "usage": 90}, "rival": {"content": 5}}
    assert tenant_periods.without_effect(given, PERIODS) == ["acme.runs"]


def test_a_period_that_is_none_is_refused_with_its_field(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, field in (
        ('{"acme": {"runs": 0}}', "acme"),
        ('{"acme": {"logs": 3}}', "logs"),
        ("acme=3", "HOCKET_KEEP_BY_TENANT"),
    ):
        monkeypatch.setenv("HOCKET_KEEP_BY_TENANT", value)
        with pytest.raises(HocketError, match=field):
            read()
