"""`hocket doctor` and a real Postgres without the settings that docs/how-to/postgres.md asks for."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import mkdtemp

import asyncpg
import pytest

from hocket.cli.doctor.database import Database, look_at_database
from hocket.cli.doctor.findings import Finding, Verdict
from hocket.kit.embedded import postgres
from hocket.kit.embedded.postgres import SETTINGS, PostgresServer

NAMES = ("max_locks_per_transaction", "work_mem")


@pytest.fixture
async def plain_url(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The URL of a server with Postgres's own defaults, as images have."""
    kept = {name: value for name, value in SETTINGS.items() if name not in NAMES}
    monkeypatch.setattr(postgres, "SETTINGS", kept)
    folder = Path(mkdtemp(prefix="hocket-"))
    server = PostgresServer(folder)
    try:
        await server.start()
        yield server.url
    finally:
        await server.stop()
        shutil.rmtree(folder)


async def settings_of(url: str) -> Finding:
    found = Database()
    await look_at_database(url, found)
    (one,) = (one for one in found.findings if one.name == "postgres settings")
    return one


async def test_it_warns_of_settings_with_which_reports_fail_and_says_what_to_set(
    plain_url: str,
) -> None:
    found = await settings_of(plain_url)
    assert found.verdict is Verdict.NOTE
    assert found.found == "max_locks_per_transaction = 64, work_mem = 4MB"
    assert "Set max_locks_per_transaction = 256 and restart Postgres" in found.cure
    assert "Set work_mem = '32MB'" in found.cure
    assert "docs/how-to/postgres.md" in found.cure

    connection = await asyncpg.connect(plain_url)
    await connection.execute("ALTER ROLE hocket SET work_mem = '64MB'")
    await connection.close()
    found = await settings_of(plain_url)
    assert found.verdict is Verdict.NOTE
    assert "work_mem = 64MB" in found.found
    assert "work_mem" not in found.cure


async def test_it_has_nothing_against_the_settings_of_hocket_up(database_url: str) -> None:
    found = await settings_of(database_url)
    assert (found.verdict, found.cure) == (Verdict.OK, "")
    assert found.found == "max_locks_per_transaction = 256, work_mem = 32MB"
