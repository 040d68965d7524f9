"""The chart above the list of runs says to the run what its rows say, from hours and from the runs of
days that changed, for every filter."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from hocket.admin.console.views.histogram import KIND_OF, histogram
from hocket.admin.runs.reads import RunFilter
from hocket.ledger.upkeep.rollups import RollupMetrics, Rollups
from support.rest_rig import Rest
from support.runs.rows import insert_run

STATUSES = ("succeeded", "succeeded", "failed", "cancelled", "degraded", "running", "rejected")
FILTERS: tuple[dict[str, Any], ...] = (
    {}, {"pipeline": "one"}, {"status": "failed"}, {"status": "succeeded"}, {"status": "running"},
    {"pipeline": "one", "version": 2}, {"version": 1}, {"pipeline": "two", "status": "cancelled"},
    {"pipeline": "none"}, {"error_code": "check_failed"},
    {"error_code": "check_failed", "status": "failed"}, {"error_code": "none"},
    {"error_code": "check_failed", "pipeline": "one", "version": 1},
)  # fmt: skip


@pytest.fixture
def dice() -> random.Random:
    return random.Random(7)


def run_id(number: int) -> str:
    return f"r{number:024x}"


async def fill(rest: Rest, dice: random.Random, first: int, number: int, days: float) -> None:
    now = datetime.now(UTC)
    for at in range(first, first + number):
        await insert_run(
            rest.pool,
            run_id(at),
            now - timedelta(days=dice.random() * days),
            pipeline=dice.choice(("one", "two")),
            version=dice.choice((1, 2)),
            status=dice.choice(STATUSES),
            tenant="default" if at % 4 else "rival",
        )


async def counted(
    rest: Rest, wanted: dict[str, Any], start: datetime, end: datetime
) -> Counter[str]:
    """What the rows say, told by a query that is not the console's."""
    rows = await rest.pool.fetch(
        "SELECT pipeline, version, status, error ->> 'code' AS error_code, accepted_at FROM hocket.run"
        " WHERE tenant = 'default'"
    )
    return Counter(
        KIND_OF[row["status"]]
        for row in rows
        if start <= row["accepted_at"] < end and all(row[k] == v for k, v in wanted.items())
    )


async def assert_exact(rest: Rest) -> int:
    now, compared = datetime.now(UTC), 0
    spans = ((30.0, 0.0), (7.0, 0.0), (2.01, 0.0), (12.3, 4.56), (3.0, 1.0), (0.9, 0.0))
    for since, until in spans:
        start, end = now - timedelta(days=since), now - timedelta(days=until)
        for wanted in FILTERS:
            asked = RunFilter(since=start, until=end if until else None, **wanted)
            found = await histogram(rest.pool, "default", asked, start, end)
            said = {
                kind: sum(getattr(found, kind))
                for kind in ("good", "failed", "cancelled", "running")
            }
            true = await counted(rest, wanted, start, end)
            assert {k: v for k, v in said.items() if v} == dict(true), (since, until, wanted)
            compared += sum(true.values())
    return compared


async def test_hours_and_rows_come_to_what_the_rows_say_whatever_changed_late(
    rest: Rest, dice: random.Random
) -> None:
    async def passed(rest: Rest) -> int:
        ledger = Rollups(rest.pool, RollupMetrics(CollectorRegistry()))
        return await ledger.make_pass(rest=0)

    await rest.pool.execute(
        "UPDATE hocket.rollup_state SET open_day = current_date - 40,"
        " open_from = (current_date - 40)::timestamp AT TIME ZONE 'UTC'"
    )
    await fill(rest, dice, 0, 240, 31)
    assert await assert_exact(rest) > 500
    assert await passed(rest) > 20
    assert await rest.pool.fetchval("SELECT sum(runs) FROM hocket.rollup_run_hours") > 200
    assert await assert_exact(rest) > 500
    await fill(rest, dice, 240, 30, 31)
    await rest.pool.execute(
        "UPDATE hocket.run SET status = 'succeeded', finished_at = now() WHERE status = 'running'"
    )
    assert await assert_exact(rest) > 500
    assert await passed(rest) > 1
    assert await assert_exact(rest) > 500


@pytest.mark.parametrize(
    ("table", "counts"),
    [("rollup_run_hours", ""), ("rollup_error_hours", " AND error IS NOT NULL")],
)
async def test_a_day_that_an_older_ledger_closed_without_hours_is_rolled_up_again(
    rest: Rest, dice: random.Random, table: str, counts: str
) -> None:
    await rest.pool.execute(
        "UPDATE hocket.rollup_state SET open_day = current_date - 3,"
        " open_from = (current_date - 3)::timestamp AT TIME ZONE 'UTC'"
    )
    await fill(rest, dice, 0, 40, 3)
    ledger = Rollups(rest.pool, RollupMetrics(CollectorRegistry()))
    await ledger.make_pass(rest=0)
    await rest.pool.execute(f"DELETE FROM hocket.{table}")
    await ledger.note_missed()
    await ledger.make_pass(rest=0)
    since = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    kept = await rest.pool.fetchval(f"SELECT coalesce(sum(runs), 0) FROM hocket.{table}")
    true = await rest.pool.fetchval(
        "SELECT count(*) FROM hocket.run WHERE accepted_at >= $1 AND accepted_at < $2" + counts,
        since,
        since + timedelta(days=2),
    )
    assert kept == true


async def test_totals_are_what_the_hours_come_to_when_some_are_deleted(
    rest: Rest, dice: random.Random
) -> None:
    await rest.pool.execute(
        "UPDATE hocket.rollup_state SET open_day = current_date - 8,"
        " open_from = (current_date - 8)::timestamp AT TIME ZONE 'UTC'"
    )
    await fill(rest, dice, 0, 120, 7)
    await Rollups(rest.pool, RollupMetrics(CollectorRegistry())).make_pass(rest=0)
    rolled_up = await hours_beside_totals(rest)
    assert len(rolled_up) > 20
    assert all(row["of_hours"] == row["of_totals"] for row in rolled_up)
    await rest.pool.execute(
        "DELETE FROM hocket.rollup_run_hours WHERE tenant = 'default' AND pipeline = 'one'"
    )
    left = await hours_beside_totals(rest)
    assert {row["tenant"] for row in left} == {"default", "rival"}
    assert all(row["of_hours"] == row["of_totals"] for row in left)
    await rest.pool.execute("DELETE FROM hocket.rollup_run_hours WHERE tenant = 'default'")
    assert {row["tenant"] for row in await hours_beside_totals(rest)} == {"rival"}


async def hours_beside_totals(rest: Rest) -> list[asyncpg.Record]:
    """What both tables say of each hour and status that one of them has."""
    found = "SELECT tenant, day, hour, status, sum(runs) AS {} FROM hocket.{} GROUP BY 1, 2, 3, 4"
    hours = found.format("of_hours", "rollup_run_hours")
    totals = found.format("of_totals", "rollup_run_totals")
    return list(
        await rest.pool.fetch(
            f"SELECT * FROM ({hours}) h FULL JOIN ({totals}) t USING (tenant, day, hour, status)"
        )
    )


async def test_the_chart_of_a_month_does_not_read_the_runs_of_days_that_are_rolled_up(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[datetime, datetime]] = []
    counted_rows = "hocket.admin.console.views.histogram._counted"

    async def counted(
        _connection: asyncpg.Connection, _tenant: str, wanted: RunFilter, *_: object
    ) -> list[asyncpg.Record]:
        assert wanted.since is not None
        assert wanted.until is not None
        asked.append((wanted.since, wanted.until))
        return []

    monkeypatch.setattr(counted_rows, counted)
    await rest.pool.execute(
        "UPDATE hocket.rollup_state SET open_day = current_date, open_from = "
        "current_date::timestamp AT TIME ZONE 'UTC'"
    )
    end = datetime.now(UTC)
    start = end - timedelta(days=30)
    await histogram(rest.pool, "default", RunFilter(since=start), start, end)
    assert sum(((until - since) for since, until in asked), timedelta()) < timedelta(
        days=1, hours=2
    )
