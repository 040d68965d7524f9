"""Where a process gets its keys: from Postgres, or without a database from the REST service over NATS.

Both return pages of keys in the order of their changes, and record when keys were used.
"""

import asyncio
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

import asyncpg
from pydantic import ValidationError

from hocket.kit.access import grant_store
from hocket.kit.access.key_store import IN_FORCE, Pool
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.access.key_messages import (
    MAX_USED,
    GrantsRow,
    KeyRow,
    KeysAsked,
    KeysTold,
)
from hocket.schemas.capabilities import SEAL, Capabilities, answer_to, sealed
from hocket.schemas.errors import ErrorClass, HocketError

QUERY_TIMEOUT_S = 2.5
ASK_TIMEOUT_MS = 2_500.0
NONCE_BYTES = 16
PAGE = 500
"""Maximum number of keys in one page."""
PAGE_BYTES = 256 * 1024
"""The size of a page as JSON; a single key may be larger, but still fits into a message."""
PAGE_TIMEOUT_S = 5.0
"""How long a page may take, with the wait for a connection."""

LAST_CHANGE = "SELECT coalesce(max(change), 0) FROM hocket.api_key"
CHANGED = f"""
SELECT key_id, name, tenant, role, scopes, models, pools, requests_per_s, expires_at, revoked_at,
       secret_sha256, former_sha256, former_until, subject, groups, change
FROM hocket.api_key
WHERE change > $1 AND (NOT $2 OR {IN_FORCE}) ORDER BY change LIMIT {PAGE}
"""
USED = """
UPDATE hocket.api_key k SET last_used_at = greatest(coalesce(k.last_used_at, u.at), u.at)
FROM unnest($1::text[], $2::timestamptz[]) AS u (key_id, at)
WHERE k.key_id = u.key_id
"""


class KeysUntold(HocketError):
    """The REST service did not send the keys: {reason}."""

    code = "keys_untold"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class KeySource(Protocol):
    """Returns pages of keys."""

    async def page(self, after: int, *, whole: bool) -> KeysTold:
        """Return a page of the keys that changed after a change number; with `whole`, only of those that
        are in force."""

    async def note_used(self, used: Mapping[str, float]) -> None:
        """Note when keys were used, in seconds of Unix time."""


class DatabaseKeys:
    """Reads the keys from Postgres."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def page(self, after: int, *, whole: bool) -> KeysTold:
        """Return a page of keys. Raises TimeoutError."""
        async with asyncio.timeout(PAGE_TIMEOUT_S):
            last = await self._pool.fetchval(LAST_CHANGE, timeout=QUERY_TIMEOUT_S)
            rows = await self._pool.fetch(CHANGED, after, whole, timeout=QUERY_TIMEOUT_S)
        keys: list[KeyRow] = []
        size = 0
        for row in rows:
            key = _key(row)
            size += len(key.model_dump_json().encode())
            if keys and size > PAGE_BYTES:
                break
            keys.append(key)
        return KeysTold(
            keys=tuple(keys), last=last, more=len(keys) < len(rows) or len(rows) == PAGE
        )

    async def grants(self, after: int) -> list[GrantsRow]:
        """Return a page of the tenants' grants that changed after a change number."""
        return await grant_store.changed(self._pool, after)

    async def note_used(self, used: Mapping[str, float]) -> None:
        """Write when keys were used."""
        names = sorted(used)
        moments = [datetime.fromtimestamp(used[name], UTC) for name in names]
        await self._pool.execute(USED, names, moments, timeout=QUERY_TIMEOUT_S)


class AskedKeys:
    """Asks the REST service for the keys. Without `seals`, no answer could be verified, so it is not
    asked."""

    def __init__(self, bus: Bus, seals: Capabilities | None) -> None:
        self._bus = bus
        self._seals = seals

    async def page(self, after: int, *, whole: bool) -> KeysTold:
        """Return a page of keys; raise KeysUntold."""
        return await self._ask(KeysAsked(after=after, whole=whole, nonce=_nonce()))

    async def grants(self, after: int) -> tuple[GrantsRow, ...]:
        """Return a page of the tenants' grants that changed after a change number; raise KeysUntold."""
        asked = KeysAsked(after=LATEST, grants_after=after, nonce=_nonce())
        return (await self._ask(asked)).grants

    async def note_used(self, used: Mapping[str, float]) -> None:
        """Report when keys were used; raise KeysUntold."""
        names = sorted(used)
        for place in range(0, len(names), MAX_USED):
            part = {name: used[name] for name in names[place : place + MAX_USED]}
            await self._ask(KeysAsked(after=LATEST, used=part, nonce=_nonce()))

    async def _ask(self, asked: KeysAsked) -> KeysTold:
        if self._seals is None:
            raise KeysUntold(
                reason="neither HOCKET_CAPABILITY_KEY nor HOCKET_USAGE_KEY is set here"
            )
        body, subject = asked.model_dump_json().encode(), subjects.ACCESS_KEYS
        try:
            answer = await self._bus.request(
                subject, body, timeout_ms=ASK_TIMEOUT_MS, headers=sealed(self._seals, subject, body)
            )
        except (BusUnavailable, TimeoutError) as error:
            raise KeysUntold(reason=str(error) or "no answer") from error
        seal = (answer.headers or {}).get(SEAL, "")
        if not self._seals.is_sealed(seal, answer_to(subject, body), answer.data):
            raise KeysUntold(reason="the answer is not sealed by the platform")
        try:
            return KeysTold.model_validate_json(answer.data)
        except ValidationError as error:
            raise KeysUntold(reason=f"the answer has {error.error_count()} faults") from error


LATEST = 2**62
"""A number beyond every change, to ask for no keys."""


def _nonce() -> str:
    return os.urandom(NONCE_BYTES).hex()


def _key(row: asyncpg.Record) -> KeyRow:
    expires_at, former_until = row["expires_at"], row["former_until"]
    return KeyRow(
        key_id=row["key_id"],
        name=row["name"],
        tenant=row["tenant"],
        role=row["role"],
        scopes=row["scopes"],
        models=row["models"],
        pools=row["pools"],
        requests_per_s=row["requests_per_s"],
        expires_at_s=None if expires_at is None else expires_at.timestamp(),
        revoked=row["revoked_at"] is not None,
        secret_sha256=row["secret_sha256"].hex(),
        former_sha256=(row["former_sha256"] or b"").hex(),
        former_until_s=0.0 if former_until is None else former_until.timestamp(),
        subject=row["subject"] or "",
        groups=tuple(row["groups"] or ()),
        change=row["change"],
    )
