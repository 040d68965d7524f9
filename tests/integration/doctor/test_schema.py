"""`hocket doctor` and databases that it reaches, but that are not as they should be."""

from urllib.parse import urlsplit

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


async def test_what_a_running_server_refuses_is_told_with_its_own_cure(database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    name = f"stranger_{urlsplit(database_url).path.strip('/')}"
    await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    try:
        of_stranger = with_login(database_url, f"{name}:p")
        assert "owns Hocket's schema" in await cure_of(of_stranger)
        assert "Create the database" in await cure_of(f"{database_url}_none")
    finally:
        await connection.execute(f"DROP ROLE {name}")
        await connection.close()


def with_login(url: str, login: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{login}@{rest.rpartition('@')[2]}"


async def cure_of(url: str) -> str:
    found = Database()
    await look_at_database(url, found)
    (failed,) = (one for one in found.findings if one.verdict is Verdict.FAILED)
    assert failed.name == "postgres"
    return failed.cure
