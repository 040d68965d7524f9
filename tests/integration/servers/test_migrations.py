"""Migrations go down one by one to nothing and up again, and the schema is then what it was."""

import asyncpg

from hocket.kit.postgres import migrations

COLUMNS = """
SELECT table_schema, table_name, column_name, data_type, column_default, is_nullable
FROM information_schema.columns WHERE table_schema IN ('hocket', 'report') ORDER BY 1, 2, 3
"""
VIEWS = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'report' ORDER BY 1"
INDEXES = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'hocket' ORDER BY 1"


async def test_every_migration_can_be_taken_back_and_made_again(database_url: str) -> None:
    before = await _schema(database_url)
    assert len(before) > 100
    for _ in range(int(migrations.head())):
        await migrations.migrate(database_url, "-1")
    assert await migrations.current(database_url) is None
    await migrations.migrate(f"{database_url}?sslmode=prefer")  # a parameter of asyncpg's alone
    assert await _schema(database_url) == before


async def _schema(database_url: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(database_url)
    try:
        return [
            tuple(row)
            for query in (COLUMNS, VIEWS, INDEXES)
            for row in await connection.fetch(query)
        ]
    finally:
        await connection.close()
