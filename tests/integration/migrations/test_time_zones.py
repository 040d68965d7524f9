"""The time zone and the style of dates that a server gives to sessions change no day of ours."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import asyncpg
import pytest

from hocket.coordinator.storage.step_tables import StepTables
from hocket.kit.postgres import migrations
from hocket.kit.postgres.database import SESSION, connect_pool, connected
from hocket.kit.postgres.migrations import MigrationFailed
from hocket.ledger.upkeep import step_days, usage_partitions

ZONE = ZoneInfo("Europe/Berlin")
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
FIRST = datetime(2026, 2, 8, tzinfo=UTC)
BEFORE, OWN = "0069", "0070"
RUN = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority,
                        accepted_at, deadline_at, input)
VALUES ($1, 0, 't', 'p', 1, 'running', 'standard', $2, $2, '{}')
"""
STEP = """
INSERT INTO hocket.step{suffix} (run_id, key, path, type, role, state, attempt, ready_at, tenant)
VALUES ($1, 'approve', 'approve', 'approval', 'node', 'waiting', 1, $2, 't')
"""
ATTEMPT = """
INSERT INTO hocket.attempt (run_id, key, attempt, outcome, finished_at, tenant)
VALUES ($1, 'approve', 1, 'failed', $2, 't')
"""
MINE = """
CREATE VIEW report.mine AS SELECT now() - interval '24 hours' AS since;
CREATE FUNCTION report.my_day() RETURNS interval LANGUAGE sql AS $$ SELECT interval '24 hours' $$;
"""
OWN_FUNCTION = """
CREATE OR REPLACE FUNCTION hocket.note_days_of_run() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN RETURN NULL; END'
"""
OWN_VIEW = """
DO $$ BEGIN
    EXECUTE 'CREATE OR REPLACE VIEW hocket.live_waste AS '
            || replace(pg_get_viewdef('hocket.live_waste'::regclass), '1 day', '26 hours');
END $$
"""
TEXTS = """
SELECT c.oid::regclass::text AS name, pg_get_viewdef(c.oid) AS text, c.reloptions::text AS options
FROM pg_class c
WHERE c.relkind = 'v' AND c.relnamespace IN ('hocket'::regnamespace, 'report'::regnamespace)
UNION ALL
SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid), NULL FROM pg_proc p
WHERE p.prokind = 'f' AND p.pronamespace IN ('hocket'::regnamespace, 'report'::regnamespace)
ORDER BY 1
"""
SPANS = "SELECT from_at, to_at FROM {spans} WHERE from_at >= $1 AND from_at < $2 ORDER BY from_at"
DAYS_OF_A_ZONE = """
SELECT name FROM (
    SELECT c.oid::regclass::text AS name, pg_get_viewdef(c.oid) AS text FROM pg_class c
    WHERE c.relkind = 'v' AND c.relnamespace IN ('hocket'::regnamespace, 'report'::regnamespace)
    UNION ALL
    SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p
    WHERE p.prokind = 'f' AND p.pronamespace IN ('hocket'::regnamespace, 'report'::regnamespace)
      AND NOT 'TimeZone=UTC' = ANY (coalesce(p.proconfig, '{}'))
    UNION ALL
    SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
) written WHERE text ~* '''-?[0-9]+ *(day|week|mon|year)'
"""
"""The views, functions and triggers that add days, months or years."""
WITHOUT_ZONE = {"report.month_forecast"}
"""Adds a month to a `timestamp` without a time zone."""


def switches() -> list[date]:
    """Return the next two days (UTC) that this time zone gives 23 and 25 hours, far from the days that
    have tables."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = (today + number * DAY for number in range(10, 385))
    return [day.date() for day in days if _offset(day) != _offset(day + DAY)][:2]


def _offset(at: datetime) -> timedelta | None:
    return at.astimezone(ZONE).utcoffset()


@pytest.fixture
async def elsewhere(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session with the settings of its database, as `psql` has them."""
    owner = await asyncpg.connect(database_url)
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} SET timezone = '{ZONE.key}'")
    await owner.execute(f"ALTER DATABASE {name} SET datestyle = 'SQL, DMY'")
    await owner.close()
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SHOW timezone") == ZONE.key
    yield connection
    await connection.close()


def _begin(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


@pytest.mark.parametrize("width", [1, 7])
async def test_tables_by_day_meet_at_midnight_also_where_a_day_has_other_hours(
    elsewhere: asyncpg.Connection, width: int
) -> None:
    for switch in switches():
        first = _begin(switch) - 2 * DAY
        last = first + 5 * DAY
        for hours in range(0, 5 * 24, 6):
            at = first + timedelta(hours=hours)
            await elsewhere.execute("SELECT hocket.cover_steps($1, $2)", at, width)
            await elsewhere.execute("SELECT hocket.cover_usage($1, $2)", at, width)
        for table in ("hocket.step_days", "hocket.usage_partition"):
            spans = SPANS.format(spans=table)
            found = await elsewhere.fetch(spans, first - width * DAY + timedelta(hours=1), last)
            assert found[0]["from_at"] <= first
            assert last <= found[-1]["to_at"]
            ends = [row["to_at"] for row in found[:-1]]
            assert ends == [row["from_at"] for row in found[1:]]
            assert {row["to_at"] - row["from_at"] for row in found} == {width * DAY}
            assert all(row["from_at"].timestamp() % 86_400 == 0 for row in found)


Bounds = list[tuple[str, datetime, datetime]]


async def divided(connection: asyncpg.Connection, *bounds: tuple[timedelta, timedelta]) -> None:
    """Make tables by day from and to these times after FIRST, and nothing between."""
    await connection.execute("UPDATE hocket.step_days SET to_at = $1 WHERE suffix = ''", FIRST)
    for begins, ends in bounds:
        await connection.execute(
            "SELECT hocket.make_step_days($1, $2)", FIRST + begins, FIRST + ends
        )


async def divided_now(connection: asyncpg.Connection) -> Bounds:
    """Return what is in `step_days` from FIRST on, in the time of UTC."""
    rows = await connection.fetch(
        "SELECT * FROM hocket.step_days WHERE to_at > $1 ORDER BY from_at", FIRST
    )
    return [(row["suffix"], row["from_at"], row["to_at"]) for row in rows]


async def looked_for_as_written(pool: asyncpg.Pool, days: int) -> None:
    """Assert that SQL looks for the steps of each hour where coordinators write them."""
    for hour in range(days * 24):
        at = FIRST + timedelta(hours=hour, minutes=30)
        written = await StepTables(pool).suffixes({"r": at.timestamp() * 1000})
        sought = await pool.fetchval("SELECT hocket.cover_steps($1)", at)
        assert written == {"r": f"_{sought}" if sought else ""}, at


@pytest.fixture
async def older(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A session with a database of the release before."""
    owner = await asyncpg.connect(database_url)
    await owner.execute("CREATE DATABASE of_before")
    url = database_url.rpartition("/")[0] + "/of_before"
    await migrations.migrate(url, BEFORE)
    connection = await connected(url)
    yield connection
    connection.terminate()
    await owner.execute("DROP DATABASE of_before WITH (FORCE)")
    await owner.close()


@pytest.fixture
def older_url(older: asyncpg.Connection, database_url: str) -> str:
    return database_url.rpartition("/")[0] + "/of_before"


@pytest.fixture
async def pool(older_url: str) -> AsyncIterator[asyncpg.Pool]:
    pool = await connect_pool(older_url, size=1, name="test")
    yield pool
    await pool.close()


@pytest.mark.parametrize(
    ("made", "healed"),
    [
        pytest.param(
            [(0 * DAY, DAY + HOUR), (DAY + HOUR, 2 * DAY), (2 * DAY, 3 * DAY)],
            [("20260208", 0, 2), ("20260210", 2, 3)],
            id="25 hours",
        ),
        pytest.param(
            [(0 * DAY, DAY - HOUR), (DAY, 2 * DAY)],
            [("20260208", 0, 1), ("20260209", 1, 2)],
            id="23 hours",
        ),
        pytest.param(
            [(0 * DAY, 7 * DAY + HOUR), (7 * DAY + HOUR, 14 * DAY), (14 * DAY, 21 * DAY)],
            [("20260208", 0, 8), ("20260215", 8, 14), ("20260222", 14, 21)],
            id="a week and an hour",
        ),
        pytest.param(
            [(0 * DAY, 7 * DAY - HOUR), (7 * DAY, 14 * DAY)],
            [("20260208", 0, 7), ("20260215", 7, 14)],
            id="a week without an hour",
        ),
        pytest.param(
            [(2 * DAY + HOUR, 4 * DAY)],
            [("20260210", 2 + 1 / 24, 4)],
            id="after days without a platform",
        ),
    ],
)
async def test_tables_that_ended_within_a_day_of_utc_get_its_rest(
    older: asyncpg.Connection,
    pool: asyncpg.Pool,
    older_url: str,
    made: list[tuple[timedelta, timedelta]],
    healed: list[tuple[str, float, float]],
) -> None:
    """Coordinators write where the first moment of a day belongs, and retention looks by each moment: it
    dropped the steps of runs in flight."""
    await divided(older, *made)
    await migrations.migrate(older_url)
    wanted = [(suffix, FIRST + begins * DAY, FIRST + ends * DAY) for suffix, begins, ends in healed]
    assert await divided_now(older) == wanted
    tables = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^step_[0-9]'"
    assert {row[0] for row in await older.fetch(tables)} == {f"step_{one[0]}" for one in healed}
    if healed[0][1] == 0:
        await looked_for_as_written(pool, int(healed[-1][2]))


async def test_retention_keeps_the_steps_of_a_run_in_flight_on_a_day_after_one_of_25_hours(
    older: asyncpg.Connection, pool: asyncpg.Pool, older_url: str
) -> None:
    await divided(older, (0 * DAY, DAY + HOUR), (DAY + HOUR, 2 * DAY))
    noon = FIRST + DAY + 12 * HOUR
    suffix = (await StepTables(pool).suffixes({"r": noon.timestamp() * 1000}))["r"]
    await older.execute(RUN, "r", noon)
    await older.execute(STEP.format(suffix=suffix), "r", noon)
    await migrations.migrate(older_url)
    await step_days.drop_behind(older, FIRST + 9 * DAY)
    assert await older.fetchval("SELECT count(*) FROM hocket.step") == 1
    assert await older.fetchval("SELECT count(*) FROM hocket.step_days") == 1


async def test_rows_of_tables_without_the_first_moment_of_a_day_move_to_those_before(
    older: asyncpg.Connection, pool: asyncpg.Pool, older_url: str
) -> None:
    """A trigger placed them there: the parents' own time ended an hour after midnight, and coordinators
    named the parents for that day."""
    await older.execute(
        "UPDATE hocket.step_days SET to_at = $1 WHERE suffix = ''", FIRST + DAY + HOUR
    )
    await older.execute("SELECT hocket.make_step_days($1, $2)", FIRST + DAY + HOUR, FIRST + 2 * DAY)
    noon = FIRST + DAY + 12 * HOUR
    assert await StepTables(pool).suffixes({"r": noon.timestamp() * 1000}) == {"r": ""}
    await older.execute(RUN, "r", noon)
    await older.execute(STEP.format(suffix=""), "r", noon)
    await older.execute(ATTEMPT, "r", noon)
    assert await older.fetchval("SELECT count(*) FROM hocket.step_20260209") == 1
    assert await older.fetchval("SELECT count(*) FROM hocket.attempt_20260209") == 1
    await older.execute(STEP.format(suffix="_20260209"), "of a run that was deleted", noon)
    await migrations.migrate(older_url)
    for kind in ("step", "attempt"):
        rows = await older.fetch(f"SELECT run_id, tenant FROM ONLY hocket.{kind}")
        assert [tuple(row) for row in rows] == [("r", "t")]
        assert await older.fetchval("SELECT to_regclass($1)", f"hocket.{kind}_20260209") is None
    ends = "SELECT to_at FROM hocket.step_days WHERE suffix = ''"
    assert await older.fetchval(ends) == FIRST + 2 * DAY


@pytest.mark.parametrize("style", ["iso_8601", "sql_standard", "postgres_verbose"])
async def test_days_are_changed_there_and_back_whatever_the_style_of_intervals(
    older: asyncpg.Connection, older_url: str, style: str
) -> None:
    before = await older.fetch(TEXTS)
    await older.execute(f"ALTER DATABASE of_before SET intervalstyle = '{style}'")
    await migrations.migrate(older_url, OWN)
    found = {row["name"] for row in await older.fetch(DAYS_OF_A_ZONE)}
    assert found == WITHOUT_ZONE
    await older.execute(MINE)
    mine = "SELECT pg_get_viewdef('report.mine'::regclass), pg_get_functiondef('report.my_day'::regproc)"
    as_written = await older.fetchrow(mine)
    await migrations.migrate(older_url, "-1")
    assert await older.fetchrow(mine) == as_written
    await older.execute("DROP VIEW report.mine; DROP FUNCTION report.my_day")
    assert await older.fetch(TEXTS) == before


@pytest.mark.parametrize(
    ("statement", "named"),
    [(OWN_FUNCTION, "note_days_of_run"), (OWN_VIEW, "live_waste")],
    ids=["function", "view"],
)
async def test_a_function_or_view_without_the_days_to_change_is_named(
    older: asyncpg.Connection, older_url: str, statement: str, named: str
) -> None:
    """Without a word, it would have stayed as it was."""
    await older.execute(statement)
    with pytest.raises(MigrationFailed, match=f"{named} is not that of this release"):
        await migrations.migrate(older_url, OWN)


async def test_a_partition_that_begins_within_a_day_has_a_name_of_its_own_and_is_dropped(
    elsewhere: asyncpg.Connection,
) -> None:
    begin = _begin(switches()[0])
    short = begin + timedelta(hours=23)
    await elsewhere.execute("SELECT hocket.make_usage_partition($1, $2)", begin, short)
    await elsewhere.execute("SELECT hocket.cover_usage($1, 1)", short)
    place = "SELECT name, to_at FROM hocket.usage_partition WHERE from_at = $1"
    name, to_at = await elsewhere.fetchrow(place, short)
    assert (name, to_at) == (f"usage_{begin:%Y%m%d}2300", begin + DAY)
    await elsewhere.execute(f"ALTER TABLE hocket.usage DETACH PARTITION hocket.{name}")
    assert await usage_partitions._finish(elsewhere, begin) == 0
    assert await elsewhere.fetchval("SELECT to_regclass($1)", f"hocket.{name}") is None


async def test_no_view_function_or_trigger_adds_days_of_the_sessions_time_zone(
    elsewhere: asyncpg.Connection,
) -> None:
    """`interval '24 hours'` is a day of UTC; so is each day in a function whose zone is set."""
    found = {row["name"] for row in await elsewhere.fetch(DAYS_OF_A_ZONE)}
    assert found == WITHOUT_ZONE


async def test_our_sessions_have_settings_of_their_own(
    elsewhere: asyncpg.Connection, database_url: str
) -> None:
    pool = await connect_pool(database_url, size=1, name="test")
    one = await connected(database_url)
    try:
        for name, value in SESSION.items():
            assert await elsewhere.fetchval(f"SHOW {name}") != value
            assert await pool.fetchval(f"SHOW {name}") == value
            assert await one.fetchval(f"SHOW {name}") == value
    finally:
        await one.close()
        await pool.close()
