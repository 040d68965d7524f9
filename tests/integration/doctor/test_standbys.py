"""`hocket doctor` of a real primary of Postgres with a synchronous standby, and of what is missing."""

import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import mkdtemp

import asyncpg
import pytest

from failover.pair import Pair
from hocket.cli.doctor import replication
from hocket.cli.doctor.database import Database, look_at_database
from hocket.cli.doctor.findings import Finding, Verdict


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    folder = Path(mkdtemp(prefix="hocket-"))
    pair = Pair(folder)
    try:
        await pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder)


async def looked(pair: Pair) -> Sequence[Finding]:
    found = Database()
    await look_at_database(f"{pair.url}?target_session_attrs=read-write", found)
    return found.findings


def of(findings: Sequence[Finding], name: str) -> Finding:
    (found,) = (one for one in findings if one.name == name)
    return found


async def executed(pair: Pair, *statements: str) -> None:
    url = pair.url_of_primary
    connection = await asyncpg.connect(url, timeout=10, command_timeout=30)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


async def test_it_says_which_is_primary_and_that_commits_are_on_both_and_what_is_missing_afterwards(
    pair: Pair,
) -> None:
    well = await looked(pair)
    places = replication.places_of(pair.url)
    roles = {str(place): of(well, f"postgres {place}").found for place in places}
    assert sorted(roles.values()) == ["primary", "standby"]
    standby = of(well, "standby")
    assert (standby.verdict, "is synchronous" in standby.found) == (Verdict.OK, True)

    await executed(
        pair,
        "ALTER SYSTEM SET synchronous_standby_names = ''",
        "ALTER SYSTEM SET synchronous_commit = 'off'",
        "SELECT pg_reload_conf()",
    )
    unsafe = await looked(pair)
    assert of(unsafe, "commits").verdict is Verdict.FAILED
    alone = of(unsafe, "standby")
    assert (alone.verdict, "is asynchronous" in alone.found) == (Verdict.NOTE, True)
    assert "synchronous_standby_names" in alone.cure

    await executed(
        pair, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
    )
    pair.kill_standby()
    away = await looked(pair)
    assert [one.verdict for one in away if one.name.startswith("postgres 127")].count(
        Verdict.FAILED
    ) == 1
    waits = of(away, "standby")
    assert (waits.verdict, "commits wait for one" in waits.found) == (Verdict.FAILED, True)
    assert "synchronous_standby_names = ''" in waits.cure
