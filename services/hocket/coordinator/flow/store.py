"""Decides which runs pass, in one transaction per pipeline: its row is locked first, so that
everything read afterwards is what the previous holder of the lock has committed. Who waits for it
gives up after LOCK_TIMEOUT, and tries again.

The lock is held by one connection at a time and released with it: a process that hangs loses it
after IDLE_TIMEOUT, and nothing that it decided is stored. Places that an ending run is deleting at
this moment are skipped, never waited for.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from pydantic_core import from_json, to_json

from hocket.coordinator.core.flow.decisions import (
    MAX_AT_ONCE,
    Decision,
    Passed,
    Waiting,
    decide,
    newest_first,
    room,
    throttled_until,
)
from hocket.coordinator.flow.places import FlowQueue
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.pipeline.flow.spec import FLOW_KINDS, MAX_STARTS

TIMEOUT_S = 10.0
LOCK_TIMEOUT = "1s"
IDLE_TIMEOUT = "5s"
MAX_KEYS = 100
"""How many queues are decided in one transaction, each in a round trip or more under the lock."""
MAX_TOLD = 1_000
"""How many runs are told again at a time."""
MAX_SWEPT = 1_000
"""How many starts that are over are deleted in one statement."""
MAX_QUEUES = 500
"""How many queues are looked at again at a time."""
TOLD_WITHIN_S = 3.0
"""A run that has not started this long after it passed is told again."""
RATES = ("rate_limit", "throttle")


@dataclass(slots=True)
class FlowOutcome:
    """What was decided and has to be told. `due`: the queues in which time alone lets another run
    pass, and in how many ms; `again`: the queues in which more has to be decided at once."""

    started: list[str] = field(default_factory=list)
    refused: list[tuple[str, ErrorInfo]] = field(default_factory=list)
    replaced: list[tuple[str, str]] = field(default_factory=list)
    due: dict[FlowQueue, float] = field(default_factory=dict)
    again: set[FlowQueue] = field(default_factory=set)


class FlowStore:
    """The statements that decide which runs pass, and that find decisions which were not told."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def decide(
        self, tenant: str, pipeline: str, queues: Collection[FlowQueue]
    ) -> FlowOutcome:
        """Decide about the first waiting runs in these queues of one pipeline (at most MAX_KEYS), and
        in those that they move on to, up to MAX_KEYS together."""
        outcome = FlowOutcome()
        async with (
            self._pool.acquire() as connection,
            connection.transaction(isolation="read_committed"),
        ):
            await connection.execute(_LIMITS, timeout=TIMEOUT_S)
            now_ms = await connection.fetchval(_LOCK, tenant, pipeline, timeout=TIMEOUT_S)
            deciding = _Deciding(connection, tenant, pipeline, now_ms, outcome)
            keys: dict[str, set[str]] = {kind: set() for kind in FLOW_KINDS}
            for queue in queues:
                keys[queue.kind].add(queue.key)
            for kind in FLOW_KINDS:
                for next_kind, key in await deciding.of_kind(kind, sorted(keys[kind])):
                    if sum(map(len, keys.values())) < MAX_KEYS:
                        keys[next_kind].add(key)
                    elif key not in keys[next_kind]:
                        outcome.again.add(FlowQueue(tenant, pipeline, next_kind, key))
        return outcome

    async def any_waits(self) -> bool:
        """Tell whether any run has places here, or any start is stored that a rate may count."""
        found: bool = await self._pool.fetchval(_ANY, timeout=TIMEOUT_S)
        return found

    async def untold(self) -> FlowOutcome:
        """Return decisions of a while ago that the runs do not show yet, to be told again."""
        await self._pool.execute(_SEEN, TOLD_WITHIN_S, MAX_TOLD, timeout=TIMEOUT_S)
        outcome = FlowOutcome()
        for row in await self._pool.fetch(_UNTOLD, TOLD_WITHIN_S, MAX_TOLD, timeout=TIMEOUT_S):
            if row["state"] == "passed":
                outcome.started.append(row["run_id"])
            else:
                error = ErrorInfo.model_validate_json(row["error"])
                outcome.refused.append((row["run_id"], error))
        for row in await self._pool.fetch(_REPLACED, TOLD_WITHIN_S, MAX_TOLD, timeout=TIMEOUT_S):
            outcome.replaced.append((row["run_id"], row["replaced_by"]))
        return outcome

    async def waiting(self, after: FlowQueue | None) -> list[FlowQueue]:
        """Return the queues in which runs wait, in order, starting after the given one."""
        rows = await self._pool.fetch(
            _QUEUES, *(after or ("", "", "", "")), MAX_QUEUES, timeout=TIMEOUT_S
        )
        return [FlowQueue(*row) for row in rows]

    async def sweep(self) -> set[FlowQueue]:
        """Delete places that ended runs failed to delete, and starts that no rate counts any more;
        return the queues in which this made room."""
        gone = await self._pool.fetch(_GONE, MAX_TOLD, timeout=TIMEOUT_S)
        while await self._pool.fetchval(_OVER, MAX_SWEPT, timeout=TIMEOUT_S) == MAX_SWEPT:
            pass  # there may be more: starts come faster than one statement a sweep deletes them
        return {FlowQueue(*row) for row in gone}


class _Deciding:
    """One transaction that decides about a pipeline."""

    def __init__(
        self,
        connection: Any,
        tenant: str,
        pipeline: str,
        now_ms: float,
        outcome: FlowOutcome,
    ) -> None:
        self._connection = connection
        self._pipeline = (tenant, pipeline)
        self._now_ms = now_ms
        self._outcome = outcome

    async def of_kind(self, kind: str, keys: list[str]) -> list[tuple[str, str]]:
        """Decide at the gates of one kind; return the kinds and keys of the gates that runs moved
        on to."""
        if not keys:
            return []
        found: list[tuple[str, Decision]] = []
        heads = await self._connection.fetch(_HEADS, *self._pipeline, kind, keys, timeout=TIMEOUT_S)
        for head in heads:
            decision = await self._of_key(kind, head)
            if decision is not None:
                found.append((head["key"], decision))
        return await self._write(kind, found)

    async def _of_key(self, kind: str, head: Any) -> Decision | None:
        key, rule = head["key"], from_json(head["rule"])
        queue = FlowQueue(*self._pipeline, kind, key)
        passed = Passed(head["held"], head["holder"] or "", head["starts"])
        most = room(kind, rule, passed, self._now_ms)
        if most == 0:
            if kind == "throttle":
                until_ms = throttled_until(rule, passed, self._now_ms)
                self._due(queue, until_ms)
            return None
        statement = _NEWEST if newest_first(kind, rule) else _OLDEST
        rows = await self._connection.fetch(
            statement, *self._pipeline, kind, key, most, timeout=TIMEOUT_S
        )
        waiting = sorted(map(_waiting, rows), key=lambda one: (one.accepted_at_ms, one.run_id))
        decision = decide(kind, waiting, passed, self._now_ms)
        self._due(queue, decision.next_at_ms)
        if len(rows) == most and (decision.passed or decision.refused):
            self._outcome.again.add(queue)
        return decision

    def _due(self, queue: FlowQueue, at_ms: float | None) -> None:
        if at_ms is not None:
            self._outcome.due[queue] = max(0.0, at_ms - self._now_ms)

    async def _write(
        self, kind: str, decisions: list[tuple[str, Decision]]
    ) -> list[tuple[str, str]]:
        """Write what was decided by key; return the kinds and keys of the gates that runs move on to."""
        for _, decision in decisions:
            await self._refuse(decision)
            await self._replace(kind, decision)
            await self._put_off(decision)
        passed = [(one, key) for key, decision in decisions for one in decision.passed]
        return await self._pass(kind, passed) if passed else []

    async def _pass(self, kind: str, passed: list[tuple[Waiting, str]]) -> list[tuple[str, str]]:
        run_ids = [one.run_id for one, _ in passed]
        gates = [one.gate for one, _ in passed]
        last = await self._connection.fetch(_PASS, run_ids, gates, timeout=TIMEOUT_S)
        self._outcome.started += [row["run_id"] for row in last if row["is_last"]]
        if kind in RATES:
            periods = [one.rule["per_s"] for one, _ in passed]
            keys = [key for _, key in passed]
            await self._execute(_START, *self._pipeline, kind, keys, run_ids, periods, self._now_ms)
        rows = await self._connection.fetch(_NEXT, run_ids, gates, timeout=TIMEOUT_S)
        return [(row["kind"], row["key"]) for row in rows]

    async def _refuse(self, decision: Decision) -> None:
        if not decision.refused:
            return
        rows = [(one.run_id, one.gate, to_json(e).decode()) for one, e in decision.refused]
        await self._execute(_REFUSE, *zip(*rows, strict=True))
        self._outcome.refused += [(one.run_id, error) for one, error in decision.refused]

    async def _replace(self, kind: str, decision: Decision) -> None:
        if not decision.replaced:
            return
        rows = await self._connection.fetch(
            _REPLACE, kind, *zip(*decision.replaced, strict=True), timeout=TIMEOUT_S
        )
        self._outcome.replaced += [(row["run_id"], row["replaced_by"]) for row in rows]

    async def _put_off(self, decision: Decision) -> None:
        if decision.put_off:
            rows = [(one.run_id, one.gate, since_ms) for one, since_ms in decision.put_off]
            await self._execute(_PUT_OFF, *zip(*rows, strict=True))

    async def _execute(self, statement: str, *arguments: Any) -> None:
        await self._connection.execute(statement, *arguments, timeout=TIMEOUT_S)


def _waiting(row: Mapping[str, Any]) -> Waiting:
    return Waiting(
        row["run_id"], row["gate"], row["accepted_ms"], row["since_ms"], from_json(row["rule"])
    )


_LIMITS = f"""
SET LOCAL lock_timeout = '{LOCK_TIMEOUT}';
SET LOCAL idle_in_transaction_session_timeout = '{IDLE_TIMEOUT}';
"""
_LOCK = """
INSERT INTO hocket.flow_pipeline AS p (tenant, pipeline, decisions) VALUES ($1, $2, 1)
ON CONFLICT (tenant, pipeline) DO UPDATE SET decisions = p.decisions + 1
RETURNING (extract(epoch FROM clock_timestamp()) * 1000)::double precision
"""
_HEADS = f"""
SELECT k.key, head.rule, passed.held, passed.holder,
       ARRAY(SELECT (extract(epoch FROM latest.at) * 1000)::double precision FROM (
             SELECT s.at FROM hocket.flow_start s
             WHERE s.tenant = $1 AND s.pipeline = $2 AND s.kind = $3 AND s.key = k.key
             ORDER BY s.at DESC LIMIT {MAX_STARTS}) AS latest
             ORDER BY latest.at) AS starts
FROM unnest($4::text[]) AS k(key)
CROSS JOIN LATERAL (
    SELECT w.rule FROM hocket.flow_place w
    WHERE w.tenant = $1 AND w.pipeline = $2 AND w.kind = $3 AND w.key = k.key AND w.state = 'waiting'
    ORDER BY w.accepted_at, w.run_id LIMIT 1) AS head
CROSS JOIN LATERAL (
    SELECT count(*) AS held, min(p.run_id) AS holder FROM hocket.flow_place p
    WHERE p.tenant = $1 AND p.pipeline = $2 AND p.kind = $3 AND p.key = k.key AND p.state = 'passed'
) AS passed
ORDER BY k.key
"""
_WAITING = """
SELECT run_id, gate, rule, (extract(epoch FROM accepted_at) * 1000)::double precision AS accepted_ms,
       (extract(epoch FROM since) * 1000)::double precision AS since_ms
FROM hocket.flow_place
WHERE tenant = $1 AND pipeline = $2 AND kind = $3 AND key = $4 AND state = 'waiting'
"""
_OLDEST = _WAITING + "ORDER BY accepted_at, run_id LIMIT $5 FOR UPDATE SKIP LOCKED"
_NEWEST = _WAITING + "ORDER BY accepted_at DESC, run_id DESC LIMIT $5 FOR UPDATE SKIP LOCKED"
_PASS = """
UPDATE hocket.flow_place p SET state = 'passed', changed_at = clock_timestamp()
FROM unnest($1::text[], $2::smallint[]) AS u(run_id, gate)
WHERE p.run_id = u.run_id AND p.gate = u.gate AND p.state = 'waiting'
RETURNING p.run_id, p.is_last
"""
_NEXT = """
UPDATE hocket.flow_place p SET state = 'waiting', changed_at = clock_timestamp()
FROM unnest($1::text[], $2::smallint[]) AS u(run_id, gate)
WHERE p.run_id = u.run_id AND p.gate = u.gate + 1 AND p.state = 'ahead'
RETURNING p.kind, p.key
"""
_REFUSE = """
UPDATE hocket.flow_place p
SET state = 'refused', error = u.error::jsonb, changed_at = clock_timestamp()
FROM unnest($1::text[], $2::smallint[], $3::text[]) AS u(run_id, gate, error)
WHERE p.run_id = u.run_id AND p.gate = u.gate
"""
_PUT_OFF = """
UPDATE hocket.flow_place p SET since = to_timestamp(u.since_ms / 1000)
FROM unnest($1::text[], $2::smallint[], $3::double precision[]) AS u(run_id, gate, since_ms)
WHERE p.run_id = u.run_id AND p.gate = u.gate
"""
_REPLACE = """
WITH held AS (
    SELECT p.run_id, p.gate, u.replaced_by
    FROM unnest($2::text[], $3::text[]) AS u(run_id, replaced_by)
    JOIN hocket.flow_place p ON p.run_id = u.run_id AND p.kind = $1 AND p.replaced_by IS NULL
    FOR UPDATE OF p SKIP LOCKED
)
UPDATE hocket.flow_place p SET replaced_by = held.replaced_by FROM held
WHERE p.run_id = held.run_id AND p.gate = held.gate
RETURNING p.run_id, p.replaced_by
"""
_START = """
INSERT INTO hocket.flow_start (tenant, pipeline, kind, key, run_id, at, until)
SELECT $1, $2, $3, u.key, u.run_id, to_timestamp($7::double precision / 1000),
       to_timestamp($7::double precision / 1000 + u.per_s)
FROM unnest($4::text[], $5::text[], $6::double precision[]) AS u(key, run_id, per_s)
ON CONFLICT (run_id, kind) DO NOTHING
"""
_ANY = """
SELECT EXISTS (SELECT FROM hocket.flow_place) OR EXISTS (SELECT FROM hocket.flow_start)
"""
_SEEN = """
WITH seen AS (
    SELECT p.run_id, p.gate FROM hocket.flow_place p
    WHERE NOT p.started AND p.state = 'passed' AND p.is_last
      AND p.changed_at < clock_timestamp() - make_interval(secs => $1)
      AND EXISTS (SELECT FROM hocket.step s WHERE s.run_id = p.run_id)
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
UPDATE hocket.flow_place p SET started = true FROM seen
WHERE p.run_id = seen.run_id AND p.gate = seen.gate
"""
_UNTOLD = """
SELECT run_id, state, error FROM hocket.flow_place
WHERE NOT started AND (state = 'refused' OR (state = 'passed' AND is_last))
  AND changed_at < clock_timestamp() - make_interval(secs => $1)
ORDER BY changed_at LIMIT $2
"""
_REPLACED = """
SELECT run_id, replaced_by FROM hocket.flow_place
WHERE replaced_by IS NOT NULL AND changed_at < clock_timestamp() - make_interval(secs => $1)
LIMIT $2
"""
_QUEUES = """
SELECT DISTINCT tenant, pipeline, kind, key FROM hocket.flow_place
WHERE state = 'waiting' AND (tenant, pipeline, kind, key) > ($1, $2, $3, $4)
ORDER BY tenant, pipeline, kind, key LIMIT $5
"""
_GONE = """
WITH gone AS (
    SELECT p.run_id, p.gate FROM hocket.flow_place p
    WHERE NOT EXISTS (
        SELECT FROM hocket.run r WHERE r.run_id = p.run_id AND r.finished_at IS NULL)
    ORDER BY p.run_id, p.gate LIMIT $1 FOR UPDATE SKIP LOCKED
)
DELETE FROM hocket.flow_place p USING gone WHERE p.run_id = gone.run_id AND p.gate = gone.gate
RETURNING p.tenant, p.pipeline, p.kind, p.key
"""
_OVER = """
WITH gone AS (
    DELETE FROM hocket.flow_start WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM hocket.flow_start WHERE until < now() ORDER BY until LIMIT $1
    )) RETURNING 1
)
SELECT count(*) FROM gone
"""
assert MAX_AT_ONCE < MAX_TOLD
