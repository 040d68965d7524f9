"""The step cache's tables: entries by content hash, claims on them, and the steps that wait.

Each operation takes a batch and is one transaction that locks the entries it may change, in the
order of their keys; two coordinators that want the same entry take turns, and only one is told to
compute. Nothing here has to survive: a lost entry, claim or waiter only means that a step is
computed twice or asks again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import asyncpg

from hocket.coordinator.core.reuse.cache_entry import Claim, Entry, Verdict, seen, verdict
from hocket.coordinator.core.run.commands import LookUpCache, ReleaseCache

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Filling:
    """An output as JSON text, for the entry of its key."""

    key: str
    tenant: str
    run_id: str
    step: str
    ttl_ms: float
    output: str
    cost_usd: Decimal


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a step that asked: an output (JSON text), or its turn to compute (None)."""

    key: str
    run_id: str
    step: str
    output: str | None = None
    computed_by_run: str = ""
    computed_by_step: str = ""
    cost_usd: Decimal = Decimal(0)


class _Told:
    """The outcome of a batch of questions: answers, claims to write, and the questions that wait."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.claims: list[tuple[str, Claim]] = []
        self.waiting: list[LookUpCache] = []

    def add(self, row: asyncpg.Record, asks: Sequence[LookUpCache]) -> None:
        """Decide about the questions for one entry, in order."""
        entry = _entry(row)
        before = entry.claim
        for ask in asks:
            told = verdict(
                entry, run_id=ask.run_id, step=ask.step, ttl_ms=ask.ttl_ms, now_ms=row["now_ms"]
            )
            if told is Verdict.HIT:
                self.answers.append(_hit(ask, row))
            elif told is Verdict.COMPUTE:
                entry = replace(entry, claim=Claim(ask.run_id, ask.step, ask.claim_until_ms))
                self.answers.append(Answer(ask.key, ask.run_id, ask.step))
            else:
                assert entry.claim is not None, "somebody is waited for"
                entry = replace(entry, claim=seen(entry.claim, row["now_ms"]))
                self.waiting.append(ask)
        if entry.claim is not None and entry.claim != before:
            self.claims.append((row["key"], entry.claim))


class CacheStore:
    """The tables of the step cache, in batches."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def look_up(self, asks: Sequence[LookUpCache]) -> list[Answer]:
        """Answer the steps whose output is here or whose turn it is to compute; the others wait
        from now on."""
        hits = await self._hits(self._pool, asks)
        answered = {(answer.run_id, answer.step) for answer in hits}
        rest = [ask for ask in asks if (ask.run_id, ask.step) not in answered]
        return hits + await self._claim(rest) if rest else hits

    async def fill(self, fillings: Iterable[Filling]) -> list[Answer]:
        """Store outputs, end the claims on their entries, and answer all steps that wait for them."""
        by_key = {filling.key: filling for filling in fillings}
        rows = sorted(by_key.values(), key=lambda filling: filling.key)
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_FILL, *_columns(rows, _FILL_FIELDS), timeout=TIMEOUT_S)
            waiting = await connection.fetch(_TAKE_WAITERS, list(by_key), timeout=TIMEOUT_S)
        return [_filled(row, by_key[row["key"]]) for row in waiting]

    async def release(self, releases: Sequence[ReleaseCache]) -> list[Answer]:
        """Forget that these steps wait or compute; if one of them had claimed an entry, the next
        step that waits for it is told to compute."""
        rows = sorted(releases, key=lambda release: release.key)
        arguments = _columns(rows, ("key", "run_id", "step"))
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, arguments[0], timeout=TIMEOUT_S)
            await connection.execute(_LEAVE, *arguments, timeout=TIMEOUT_S)
            handed_on = await connection.fetch(_HAND_ON, *arguments, timeout=TIMEOUT_S)
        return [Answer(**dict(row)) for row in handed_on]

    async def sweep(self, limit: int) -> int:
        """Remove at most `limit` expired entries; return how many were removed."""
        rows = await self._pool.fetch(_SWEEP, limit, timeout=TIMEOUT_S)
        return len(rows)

    async def _hits(self, connection: Any, asks: Sequence[LookUpCache]) -> list[Answer]:
        keys = list({ask.key for ask in asks})
        rows = await connection.fetch(_FRESH, keys, timeout=TIMEOUT_S)
        found = {row["key"]: row for row in rows}
        return [
            _hit(ask, row)
            for ask in asks
            if (row := found.get(ask.key)) is not None and row["age_ms"] < ask.ttl_ms
        ]

    async def _claim(self, asks: Sequence[LookUpCache]) -> list[Answer]:
        """Claim the entries that nobody computes for the first step that asks, and let the others
        wait."""
        by_key: dict[str, list[LookUpCache]] = {}
        for ask in asks:
            by_key.setdefault(ask.key, []).append(ask)
        first = [by_key[key][0] for key in sorted(by_key)]
        told = _Told()
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(
                _ENTRIES,
                *_columns(first, ("key", "tenant", "claim_until_ms")),
                timeout=TIMEOUT_S,
            )
            for row in rows:
                told.add(row, by_key[row["key"]])
            if told.claims:
                arguments = [
                    [key for key, _ in told.claims],
                    *_columns([c for _, c in told.claims], _CLAIM_FIELDS),
                ]
                await connection.execute(_CLAIM, *arguments, timeout=TIMEOUT_S)
            if told.waiting:
                columns = _columns(told.waiting, _WAIT_FIELDS)
                await connection.execute(_WAIT, *columns, timeout=TIMEOUT_S)
        return told.answers


def _entry(row: Mapping[str, Any]) -> Entry:
    claim = None
    if row["claimed_run"] is not None:
        claim = Claim(
            row["claimed_run"], row["claimed_step"], row["claimed_until_ms"], row["holder_ended"]
        )
    if row["output"] is None:
        return Entry(claim=claim)
    return Entry(row["now_ms"] - row["age_ms"], row["fresh_until_ms"], claim)


def _hit(ask: LookUpCache, row: Mapping[str, Any]) -> Answer:
    return Answer(
        key=ask.key,
        run_id=ask.run_id,
        step=ask.step,
        output=row["output"],
        computed_by_run=row["filled_run"],
        computed_by_step=row["filled_step"],
        cost_usd=row["cost_usd"],
    )


def _filled(waiter: Mapping[str, Any], filling: Filling) -> Answer:
    return Answer(
        key=filling.key,
        run_id=waiter["run_id"],
        step=waiter["step"],
        output=filling.output,
        computed_by_run=filling.run_id,
        computed_by_step=filling.step,
        cost_usd=filling.cost_usd,
    )


def _columns(rows: Sequence[Any], fields: Sequence[str]) -> list[list[Any]]:
    return [[getattr(row, field) for row in rows] for field in fields]


_CLAIM_FIELDS = ("run_id", "step", "until_ms")
_WAIT_FIELDS = ("key", "run_id", "step", "claim_until_ms")
_FILL_FIELDS = ("key", "tenant", "run_id", "step", "ttl_ms", "output", "cost_usd")
# Reads existing outputs without a lock: most questions are answered here.
_FRESH = """
SELECT key, output, filled_run, filled_step, cost_usd,
       (extract(epoch FROM now() - filled_at) * 1000)::double precision AS age_ms
FROM hocket.step_cache
WHERE key = ANY($1::text[]) AND fresh_until > now()
"""
# Create missing entries, lock all of them in order, and return what they hold.
_ENTRIES = """
INSERT INTO hocket.step_cache AS entry (key, tenant, expires_at)
SELECT key, tenant, to_timestamp(until_ms / 1000)
FROM unnest($1::text[], $2::text[], $3::double precision[]) AS asked(key, tenant, until_ms)
ORDER BY key
ON CONFLICT (key) DO UPDATE SET expires_at = greatest(entry.expires_at, excluded.expires_at)
RETURNING key, filled_run, filled_step, cost_usd, claimed_run, claimed_step,
    CASE WHEN fresh_until > clock_timestamp() THEN output END AS output,
    (extract(epoch FROM clock_timestamp()) * 1000)::double precision AS now_ms,
    (extract(epoch FROM clock_timestamp() - filled_at) * 1000)::double precision AS age_ms,
    (extract(epoch FROM fresh_until) * 1000)::double precision AS fresh_until_ms,
    (extract(epoch FROM claimed_until) * 1000)::double precision AS claimed_until_ms,
    EXISTS (
        SELECT FROM hocket.step AS holder
        WHERE holder.run_id = entry.claimed_run AND holder.key = entry.claimed_step
          AND holder.finished_at IS NOT NULL
    ) AS holder_ended
"""
_CLAIM = """
UPDATE hocket.step_cache AS entry
SET claimed_run = mine.run_id, claimed_step = mine.step,
    claimed_until = to_timestamp(mine.until_ms / 1000)
FROM unnest($1::text[], $2::text[], $3::text[], $4::double precision[])
    AS mine(key, run_id, step, until_ms)
WHERE entry.key = mine.key
"""
_WAIT = """
INSERT INTO hocket.step_cache_waiter (key, run_id, step, claim_until)
SELECT key, run_id, step, to_timestamp(until_ms / 1000)
FROM unnest($1::text[], $2::text[], $3::text[], $4::double precision[])
    WITH ORDINALITY AS asked(key, run_id, step, until_ms, place)
ORDER BY place
ON CONFLICT (key, run_id, step) DO UPDATE SET claim_until = excluded.claim_until
"""
_FILL = """
INSERT INTO hocket.step_cache
    (key, tenant, filled_run, filled_step, output, cost_usd, filled_at, fresh_until, expires_at)
SELECT key, tenant, run_id, step, output, cost_usd, clock_timestamp(),
       clock_timestamp() + ttl, clock_timestamp() + ttl
FROM (
    SELECT *, make_interval(secs => ttl_ms / 1000) AS ttl
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::double precision[],
                $6::text[], $7::numeric[])
        AS given(key, tenant, run_id, step, ttl_ms, output, cost_usd)
) AS filling
ORDER BY key
ON CONFLICT (key) DO UPDATE
SET filled_run = excluded.filled_run, filled_step = excluded.filled_step,
    output = excluded.output, cost_usd = excluded.cost_usd, filled_at = excluded.filled_at,
    fresh_until = excluded.fresh_until, expires_at = excluded.expires_at,
    claimed_run = NULL, claimed_step = NULL, claimed_until = NULL
"""
_TAKE_WAITERS = """
WITH gone AS (
    DELETE FROM hocket.step_cache_waiter WHERE key = ANY($1::text[])
    RETURNING key, run_id, step, place
)
SELECT key, run_id, step FROM gone ORDER BY place
"""
_LOCK = "SELECT FROM hocket.step_cache WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE"
_LEAVE = """
DELETE FROM hocket.step_cache_waiter AS waiter
USING unnest($1::text[], $2::text[], $3::text[]) AS gone(key, run_id, step)
WHERE (waiter.key, waiter.run_id, waiter.step) = (gone.key, gone.run_id, gone.step)
"""
# The claims of the leaving steps pass to the first that wait; a claim that nobody takes ends.
_HAND_ON = """
WITH ending AS (
    SELECT DISTINCT entry.key
    FROM hocket.step_cache AS entry
    JOIN unnest($1::text[], $2::text[], $3::text[]) AS gone(key, run_id, step)
        ON (entry.key, entry.claimed_run, entry.claimed_step) = (gone.key, gone.run_id, gone.step)
), next AS (
    SELECT DISTINCT ON (waiter.key) waiter.*
    FROM hocket.step_cache_waiter AS waiter JOIN ending USING (key)
    ORDER BY waiter.key, waiter.place
), claimed AS (
    UPDATE hocket.step_cache AS entry
    SET claimed_run = next.run_id, claimed_step = next.step, claimed_until = next.claim_until,
        expires_at = greatest(entry.expires_at, next.claim_until)
    FROM ending LEFT JOIN next USING (key)
    WHERE entry.key = ending.key
), gone AS (
    DELETE FROM hocket.step_cache_waiter AS waiter USING next
    WHERE (waiter.key, waiter.run_id, waiter.step) = (next.key, next.run_id, next.step)
)
SELECT key, run_id, step FROM next
"""
_SWEEP = """
DELETE FROM hocket.step_cache
WHERE key IN (
    SELECT key FROM hocket.step_cache WHERE expires_at < now()
    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
RETURNING key
"""
