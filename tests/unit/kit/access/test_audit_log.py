"""The audit's chain, checked at once and in parts: both find the same."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import BEGIN, HEAD, IS_THERE, ORIGIN, READ, AuditRow, Link, Verdict

AT = datetime(2026, 5, 4, tzinfo=UTC)
ROWS = 7


class Table:
    """The tables of the audit, in memory: it answers the queries of a check."""

    def __init__(self) -> None:
        self.rows: list[AuditRow] = []
        self.end = BEGIN
        for seq in range(1, ROWS + 1):
            row = AuditRow(
                seq=seq, at=AT, tenant="acme", actor="key:a", address="local", action="keys.create",
                target=f"key:{seq}", before=None, after='{"role": "viewer"}',
                previous=self.end.hash, hash=b"",
            )  # fmt: skip
            self.rows.append(replace(row, hash=row.expected_hash))
            self.end = Link(seq, row.expected_hash)

    async def fetch(self, query: str, after: int, tenant: str | None, limit: int) -> list[Any]:
        assert (query, tenant) == (READ, None)
        found = [row for row in self.rows if row.seq > after][:limit]
        return [[getattr(row, name) for name in AuditRow.__slots__] for row in found]

    async def fetchrow(self, query: str) -> dict[str, Any]:
        assert query == HEAD
        return {"seq": self.end.seq, "hash": self.end.hash}

    async def fetchval(self, query: str, row_hash: bytes) -> bool:
        assert query == IS_THERE
        return any(row.hash == row_hash for row in self.rows)


async def in_parts(table: Any, limit: int, head: str | None = None) -> list[Verdict]:
    """Check the chain in parts of this many rows, and return the verdict about each."""
    found = [await audit_log.verified(table, head, limit=limit)]
    while found[-1].next is not None:
        start = Link(found[-1].next, bytes.fromhex(found[-1].head))
        found.append(await audit_log.verified(table, head, start=start, limit=limit))
    return found


@pytest.mark.parametrize("limit", [1, 3, ROWS, ROWS + 1])
async def test_parts_find_what_a_check_of_the_whole_chain_finds(limit: int) -> None:
    table: Any = Table()
    parts = await in_parts(table, limit)
    assert parts[-1] == await audit_log.verified(table) == Verdict(ROWS, table.end.hash.hex())
    assert len(parts) == ROWS // limit + 1
    assert [one.rows for one in parts[:-1]] == [one.next for one in parts[:-1]]


def change(table: Table) -> None:
    table.rows[4] = replace(table.rows[4], actor="key:somebody")


def remove(table: Table) -> None:
    del table.rows[4]


def remove_last(table: Table) -> None:
    del table.rows[4:]


def add(table: Table) -> None:
    row = replace(table.rows[-1], seq=ROWS + 1, previous=table.end.hash)
    table.rows.append(replace(row, hash=row.expected_hash))


@pytest.mark.parametrize("limit", [1, 2, 3, ROWS])
@pytest.mark.parametrize("tamper", [change, remove, remove_last, add])
async def test_a_change_of_the_chain_is_found_in_parts_too(tamper: Any, limit: int) -> None:
    table: Any = Table()
    tamper(table)
    whole = await audit_log.verified(table)
    assert whole.broken_at is not None
    assert (await in_parts(table, limit))[-1] == whole


async def test_a_check_goes_on_from_a_row_only_if_it_is_still_as_it_was() -> None:
    table: Any = Table()
    start = Link(5, table.rows[4].hash)
    assert await audit_log.verified(table, start=start) == Verdict(ROWS, table.end.hash.hex())
    last = Link(ROWS, table.end.hash)
    assert (await audit_log.verified(table, start=last)).broken_at is None
    for tamper in (change, remove):
        other: Any = Table()
        tamper(other)
        assert (await audit_log.verified(other, start=start)).broken_at == 5
    assert (await audit_log.verified(table, start=Link(5, ORIGIN))).broken_at == 5
    assert (await audit_log.verified(table, start=Link(ROWS + 1, ORIGIN))).broken_at == ROWS + 1


async def test_the_last_part_says_whether_a_row_of_an_export_is_still_there() -> None:
    table: Any = Table()
    assert (await in_parts(table, 3, table.rows[1].hash.hex()))[-1].broken_at is None
    gone = await in_parts(table, 3, "0" * 64)
    assert [one.broken_at for one in gone] == [None, None, ROWS + 1]
