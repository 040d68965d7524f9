"""A release beside the schema of the next one, as while it is rolled back to: it runs, and migrates
nothing."""

import asyncpg
import pytest

from hocket.kit.postgres import migrations

NEXT = "9999"
SHORT_MS = 300.0


async def set_revision(database_url: str, revision: str) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute("UPDATE public.hocket_revision SET version_num = $1", revision)
    await connection.close()


async def test_a_release_runs_on_a_later_schema_and_leaves_it_as_it_is(database_url: str) -> None:
    await migrations.migrate(database_url)
    assert await migrations.current(database_url) == migrations.head()
    await set_revision(database_url, NEXT)
    await migrations.wait_current(database_url, SHORT_MS)
    await migrations.migrate(database_url)
    assert await migrations.current(database_url) == NEXT


async def test_a_release_waits_while_the_schema_is_an_earlier_one(database_url: str) -> None:
    await migrations.migrate(database_url)
    await set_revision(database_url, "0001")
    with pytest.raises(migrations.SchemaNotReady, match="0001"):
        await migrations.wait_current(database_url, SHORT_MS)
