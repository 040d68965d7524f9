"""A backup's tables, copied while the platform goes on."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hocket.cli.backups import tables

DAY = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_a_day_that_retention_would_drop_meanwhile_stays_until_it_is_copied(
    connection: asyncpg.Connection,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await connection.execute("UPDATE hocket.step_days SET to_at = $1 WHERE suffix = ''", DAY)
    suffix = await connection.fetchval(
        "SELECT hocket.make_step_days($1, $2)", DAY, DAY + timedelta(days=1)
    )
    janitor = await asyncpg.connect(database_url, server_settings={"lock_timeout": "100ms"})
    drop = f"DROP TABLE hocket.step_{suffix}, hocket.attempt_{suffix}"
    copy, refused = asyncpg.Connection.copy_from_query, []

    async def copied(own: asyncpg.Connection, *query: Any, **how: Any) -> str:
        if not refused:
            with pytest.raises(asyncpg.LockNotAvailableError) as told:
                await janitor.execute(drop)
            refused.append(told.value)
        return str(await copy(own, *query, **how))

    monkeypatch.setattr(asyncpg.Connection, "copy_from_query", copied)
    try:
        found = await tables.copy_out(connection, tmp_path / "postgres")
        await janitor.execute(drop)
    finally:
        await janitor.close()
    assert refused
    assert f"hocket.step_{suffix}" in found["tables"]
