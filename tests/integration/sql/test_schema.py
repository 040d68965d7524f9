"""What a planner is told about a database: the allowed tables, and no more than fits."""

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from hocket.workers.sql.schema import describe
from hocket.workers.sql.targets import Target, TargetSettings

TIMEOUT_MS = 20_000.0
TABLES = """
CREATE SCHEMA shop; CREATE SCHEMA secret;
CREATE TABLE secret.keys (k text);
CREATE TABLE shop.users (id bigint PRIMARY KEY, name text);
COMMENT ON TABLE shop.users IS 'Who buys';
COMMENT ON COLUMN shop.users.name IS 'As on the letterbox';
CREATE TABLE shop.orders (
    id bigint PRIMARY KEY, user_id bigint REFERENCES shop.users (id), state varchar(10)
);
CREATE VIEW shop.paid AS SELECT id FROM shop.orders WHERE state = 'paid';
INSERT INTO shop.users SELECT i, 'user ' || i FROM generate_series(1, 100) i;
INSERT INTO shop.orders SELECT i, i, CASE i % 2 WHEN 0 THEN 'open' ELSE 'paid' END
    FROM generate_series(1, 100) i;
"""


@pytest.fixture
async def target(database_url: str) -> AsyncIterator[Target]:
    connection = await asyncpg.connect(database_url)
    await connection.execute(TABLES)
    await connection.close()
    target = Target("shop", TargetSettings(url=database_url, tables=("shop.*",)))
    yield target
    await target.close()


async def test_tables_come_with_columns_comments_keys_and_values(target: Target) -> None:
    described = await describe(target, timeout_ms=TIMEOUT_MS, values=True)
    by_name = {table["name"]: table for table in described["tables"]}
    assert sorted(by_name) == ["shop.orders", "shop.paid", "shop.users"]
    assert by_name["shop.users"] == {
        "name": "shop.users",
        "comment": "Who buys",
        "primary_key": ["id"],
        "columns": [
            {"name": "id", "type": "bigint"},
            {"name": "name", "type": "text", "comment": "As on the letterbox"},
        ],
    }
    assert by_name["shop.orders"]["foreign_keys"] == [
        {"columns": ["user_id"], "to": "shop.users", "to_columns": ["id"]}
    ]
    assert by_name["shop.orders"]["columns"][2]["values"] == ["open", "paid"]


async def test_only_the_tables_asked_for_and_allowed_are_described(target: Target) -> None:
    described = await describe(
        target, timeout_ms=TIMEOUT_MS, tables=("shop.users", "secret.keys", "secret.*")
    )
    assert [table["name"] for table in described["tables"]] == ["shop.users"]


@pytest.mark.parametrize("max_bytes", [150, 300, 500, 800])
async def test_what_does_not_fit_is_left_out_by_name(target: Target, max_bytes: int) -> None:
    described = await describe(target, timeout_ms=TIMEOUT_MS, values=True, max_bytes=max_bytes)
    assert len(json.dumps(described).encode()) <= max_bytes
    shown = [table["name"] for table in described["tables"]]
    assert sorted(shown + described["left_out"]) == ["shop.orders", "shop.paid", "shop.users"]


async def test_sqlite_is_described_the_same_way(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE t (id integer PRIMARY KEY, state text)")
    connection.execute("INSERT INTO t VALUES (1, 'open'), (2, 'paid'), (3, NULL)")
    connection.commit()
    connection.close()
    target = Target("lite", TargetSettings(url=f"sqlite:///{file}", tables=("main.*",)))
    described = await describe(target, timeout_ms=TIMEOUT_MS, values=True)
    assert described["tables"] == [
        {
            "name": "main.t",
            "primary_key": ["id"],
            "columns": [
                {"name": "id", "type": "integer"},
                {"name": "state", "type": "text", "values": ["open", "paid"]},
            ],
        }
    ]
    await target.close()
