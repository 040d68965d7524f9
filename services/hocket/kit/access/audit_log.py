"""The audit: who changed what, and from where, written in the transaction of the change.

Each row holds the hash of the row before it and the SHA-256 of that hash and its own content, so that a
row that was changed, removed or inserted is detected (`verified`). The end of the chain is kept in
`hocket.audit_head`, and in every export. The database refuses to change rows; the chain guards against
those who can turn that off.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import asyncpg

ORIGIN = bytes(32)
"""The previous hash of the first row."""
PAGE = 1_000
MAX_VALUE_CHARS = 16_384
"""Length of `before` and `after` as JSON, each; longer values are replaced by their SHA-256."""

NEXT = """
UPDATE hocket.audit_head SET seq = seq + 1 RETURNING seq, hash, clock_timestamp() AS at
"""
"""Returns the next number and the end of the chain. The row is locked until the transaction ends, so
that only one transaction writes at a time. (Any login, even one for reports, could hold an advisory
lock.)"""
CLOSE = "UPDATE hocket.audit_head SET hash = $1"
HEAD = "SELECT seq, hash FROM hocket.audit_head"
INSERT = """
INSERT INTO hocket.audit (seq, at, tenant, actor, address, action, target, before, after, previous, hash)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
"""
READ = """
SELECT seq, at, tenant, actor, address, action, target, before::text, after::text, previous, hash
FROM hocket.audit
WHERE seq > $1 AND ($2::text IS NULL OR tenant = $2)
ORDER BY seq LIMIT $3
"""
"""Rows after a number, of one tenant or of all."""
IS_THERE = "SELECT EXISTS (SELECT FROM hocket.audit WHERE hash = $1)"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: `key:<id>` or `os:<user>`, and the address that the request came from."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Action:
    """A change: `action` is its kind (`keys.create`), `target` what was changed, `tenant` the owner of
    the target. `before` and `after` hold no secrets and no content of runs."""

    action: str
    target: str
    tenant: str | None
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row of the audit."""

    seq: int
    at: datetime
    tenant: str | None
    actor: str
    address: str
    action: str
    target: str
    before: str | None
    after: str | None
    previous: bytes
    hash: bytes

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain data, as it is exported."""
        return {
            "seq": self.seq,
            "at": _moment(self.at),
            "tenant": self.tenant,
            "actor": self.actor,
            "address": self.address,
            "action": self.action,
            "target": self.target,
            "before": None if self.before is None else json.loads(self.before),
            "after": None if self.after is None else json.loads(self.after),
            "previous": self.previous.hex(),
            "hash": self.hash.hex(),
        }

    @property
    def expected_hash(self) -> bytes:
        """The hash that the content of the row must have."""
        content = (self.seq, _moment(self.at), self.tenant, self.actor, self.address, self.action)
        told = [*content, self.target, self.before, self.after]
        text = json.dumps(told, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(self.previous + text.encode()).digest()


@dataclass(frozen=True, slots=True)
class Link:
    """A row of the chain: its number and its hash."""

    seq: int
    hash: bytes


BEGIN = Link(0, ORIGIN)
"""Where the chain begins: before the first row."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check of the chain: the number of the last intact row, its hash, and `broken_at`,
    the first row that does not fit (None if all do), with the reason. `next` is the row after which to
    go on, if a limit ended the check (otherwise None)."""

    rows: int
    head: str
    broken_at: int | None = None
    reason: str = ""
    next: int | None = None


async def record(connection: asyncpg.Connection, actor: Actor, action: Action) -> None:
    """Write an action to the audit, in the connection's current transaction."""
    assert connection.is_in_transaction(), "an action and its row are written together"
    head = await connection.fetchrow(NEXT)
    row = AuditRow(
        seq=head["seq"],
        at=head["at"],
        tenant=action.tenant,
        actor=actor.name,
        address=actor.address,
        action=action.action,
        target=action.target,
        before=_text(action.before),
        after=_text(action.after),
        previous=head["hash"],
        hash=b"",
    )
    values = (row.seq, row.at, row.tenant, row.actor, row.address, row.action, row.target)
    told = row.expected_hash
    await connection.execute(INSERT, *values, row.before, row.after, row.previous, told)
    await connection.execute(CLOSE, told)


async def rows(
    pool: asyncpg.Pool, *, after: int = 0, tenant: str | None = None
) -> AsyncIterator[AuditRow]:
    """Yield the rows after the number `after`, in order, of one tenant or of all."""
    while True:
        found = await page(pool, after=after, tenant=tenant, limit=PAGE)
        for row in found:
            yield row
        if len(found) < PAGE:
            return
        after = found[-1].seq


async def page(pool: asyncpg.Pool, *, after: int, tenant: str | None, limit: int) -> list[AuditRow]:
    """Return at most `limit` rows after the number `after`, of one tenant or of all."""
    return [AuditRow(*row) for row in await pool.fetch(READ, after, tenant, limit)]


async def verified(
    pool: asyncpg.Pool, head: str | None = None, *, start: Link = BEGIN, limit: int | None = None
) -> Verdict:
    """Read the chain and check that it is intact and, with `head`, that a row with this hash is still
    part of it. With `start`, check that this row is there, and those after it; with `limit`, at most so
    many rows, and the end of the chain only if it was reached."""
    before = await pool.fetchrow(HEAD)
    if start != BEGIN and not await _is_there(pool, start):
        reason = "the row with that number and hash is no longer there"
        return Verdict(0, "", start.seq, reason)
    last, count = start, 0
    async for row in rows(pool, after=start.seq):
        reason = _fault(row, last.seq, last.hash)
        if reason:
            return Verdict(last.seq, last.hash.hex(), row.seq, reason)
        last, count = Link(row.seq, row.hash), count + 1
        if count == limit:
            return Verdict(last.seq, last.hash.hex(), next=last.seq)
    return await _at_the_end(pool, before, last, head)


async def _is_there(pool: asyncpg.Pool, link: Link) -> bool:
    """Tell whether a row is as it was when its hash was noted."""
    found = await page(pool, after=link.seq - 1, tenant=None, limit=1)
    return any(
        (row.seq, row.hash, row.expected_hash) == (link.seq, link.hash, link.hash) for row in found
    )


async def _at_the_end(
    pool: asyncpg.Pool, before: asyncpg.Record | None, last: Link, head: str | None
) -> Verdict:
    """Return the verdict about a chain that is intact up to its last row. `before` is the end that was
    stored when the check began; rows may have been written meanwhile, each with the end."""
    seen, shown = last.seq, last.hash.hex()
    after = await pool.fetchrow(HEAD)
    if before is None or after is None:
        return Verdict(seen, shown, seen + 1, "the end of the chain is not stored any more")
    if seen > after["seq"]:
        reason = "it was added behind the end of the chain"
        return Verdict(after["seq"], after["hash"].hex(), after["seq"] + 1, reason)
    if seen < before["seq"] or (seen == after["seq"] and last.hash != after["hash"]):
        return Verdict(seen, shown, seen + 1, "the last rows are missing")
    if head is not None and not await pool.fetchval(IS_THERE, bytes.fromhex(head)):
        return Verdict(seen, shown, seen + 1, "the row with that hash is no longer there")
    return Verdict(seen, shown)


def _fault(row: AuditRow, seen: int, previous: bytes) -> str:
    if row.seq != seen + 1:
        return f"row {seen + 1} is missing"
    if row.previous != previous:
        return "it does not follow the previous row"
    if row.hash != row.expected_hash:
        return "its content does not match its hash"
    return ""


def _text(value: Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, default=str)
    if len(text) > MAX_VALUE_CHARS:
        return json.dumps({"sha256": hashlib.sha256(text.encode()).hexdigest(), "chars": len(text)})
    return text


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")
