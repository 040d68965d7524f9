"""The row types of Postgres have the columns that the coordinator sends, in its order."""

import asyncio

import asyncpg

from hocket.coordinator.storage.store import WRITTEN_COLUMNS

SENT_AS = {"jsonb": "text", "timestamptz": "double precision"}
ATTRIBUTES = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = $1::regclass AND NOT attisdropped ORDER BY attnum
"""


def test_a_row_type_has_the_columns_of_the_rows(database_url: str) -> None:
    async def attributes() -> dict[str, list[tuple[str, str]]]:
        connection = await asyncpg.connect(database_url)
        try:
            return {
                kind: [tuple(row) for row in await connection.fetch(ATTRIBUTES, _type_name(kind))]
                for kind in WRITTEN_COLUMNS
            }
        finally:
            await connection.close()

    assert asyncio.run(attributes()) == {
        kind: [(name, SENT_AS.get(type_, type_)) for name, type_ in columns.items()]
        for kind, columns in WRITTEN_COLUMNS.items()
    }


def _type_name(kind: str) -> str:
    return f"hocket.written_{kind}"
