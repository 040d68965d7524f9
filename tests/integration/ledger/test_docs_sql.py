"""Every statement on a page is one that a platform's database takes: queries are planned, with the
tables and columns that they name, by a reader of the reports where these are all they read."""

import re
from typing import Any

import asyncpg
import pytest

from support.places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```sql\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
SETUP = {"postgres.md"}
"""Pages whose statements make roles and databases; `test_own_postgres.py` plays them."""


def _statements() -> list[Any]:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in () if page.name in SETUP else BLOCK.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            statements = re.sub(r"--[^\n]*", "", match[1]).split(";")
            found += [
                pytest.param(statement, id=f"{page.stem}:{line}")
                for statement in statements
                if statement.strip()
            ]
    return found


async def test_every_query_is_one_that_can_be_asked(module_database_url: str) -> None:
    connection = await asyncpg.connect(module_database_url)
    try:
        wrong = []
        for statement in _statements():
            sql = str(statement.values[0])
            try:
                async with connection.transaction():
                    if "hocket." not in sql:
                        await connection.execute("SET LOCAL ROLE hocket_report")
                    await connection.execute(f"EXPLAIN {sql}")
            except asyncpg.PostgresError as error:
                wrong.append((statement.id, str(error)))
        assert not wrong
    finally:
        await connection.close()
    assert len(_statements()) > 30
