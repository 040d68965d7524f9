"""`hocket doctor` and schemas that are not of this release."""

import asyncpg
import pytest

from hocket.cli.doctor.database import Database, look_at_database
from hocket.cli.doctor.findings import Finding, Verdict


async def migrations_at(database_url: str, revision: str) -> Finding:
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE public.hocket_revision SET version_num = $1", revision)
    await connection.close()
    found = Database()
    await look_at_database(database_url, found)
    return next(one for one in found.findings if one.name == "migrations")


@pytest.mark.parametrize(
    ("revision", "verdict", "cure"),
    [("9999", Verdict.NOTE, "Upgrade this release"), ("0001", Verdict.FAILED, "hocket migrate")],
)
async def test_it_says_on_which_side_the_release_is_older(
    database_url: str, revision: str, verdict: Verdict, cure: str
) -> None:
    found = await migrations_at(database_url, revision)
    assert (found.verdict, f"at {revision}" in found.found) == (verdict, True)
    assert cure in found.cure
