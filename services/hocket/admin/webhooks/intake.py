"""Collects the messages for webhooks: ends of runs, from EVENTS, and pending approvals, from the
database.

Ends arrive through a durable consumer shared by all REST processes (`EndReader`). They are acknowledged
once their messages are in Postgres; an end that arrives twice produces the same message id. Pending
approvals are found by a sweep every SWEEP_S, since no message announces them reliably.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

import asyncpg
import structlog
from pydantic import ValidationError

from hocket.admin.context import Context
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.webhooks import messages, store
from hocket.admin.webhooks.end_reader import EndReader
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.schemas.messages import RunFinished

ACK_WAIT_MS = 60_000.0
"""How long until an end that was delivered but not acknowledged is redelivered."""
PAUSE_S = 1.0
SWEEP_S = 5.0
SWEEP_SHARE = 0.05
"""The share of its time for which a process looks for the approvals of a tenant, if no other tenant's
take longer."""
APPROVALS_AT_ONCE = 100
"""Approvals handled per webhook in one sweep."""
KEPT_AT_ONCE = 500
"""Messages written in one transaction."""
MAX_WAITING = 10_000
"""Messages queued for one webhook; further ones are dropped and counted."""
MAX_PART_CHARS = 2_000
"""How much is sent of what an approval is about."""
AWAY: tuple[type[BaseException], ...] = (BusUnavailable, TimeoutError, OSError, *STATEMENT_ERRORS)

INTERESTED = """
SELECT webhook_id, tenant, events, pipelines, labels, content, enabled_at FROM hocket.webhook
WHERE tenant = ANY ($1::text[]) AND enabled
"""
ASKING = "SELECT DISTINCT tenant FROM hocket.webhook WHERE enabled AND 'run.waiting' = ANY (events)"
"""The tenants with webhooks that are told of approvals."""
APPROVALS = """
WITH asking AS MATERIALIZED (
    SELECT webhook_id, content, pipelines, labels, enabled_at FROM hocket.webhook
    WHERE tenant = $1 AND enabled AND 'run.waiting' = ANY (events)),
waiting AS MATERIALIZED (
    SELECT r.run_id, s.key, s.ready_at, r.pipeline, coalesce(r.labels, '{}') AS labels, ARRAY(
        SELECT d.webhook_id FROM hocket.webhook_delivery d
        WHERE d.event = 'run.waiting' AND d.run_id = r.run_id AND d.step = s.key
          AND d.created_at >= s.ready_at) AS told
    FROM hocket.run r JOIN hocket.step s ON s.run_id = r.run_id
    WHERE r.tenant = $1 AND r.status = 'running' AND r.finished_at IS NULL
      AND s.state = 'waiting' AND s.type = 'approval'
      AND s.ready_at >= (SELECT min(enabled_at) FROM asking)),
untold AS MATERIALIZED (
    SELECT w.webhook_id, w.content, found.run_id, found.key
    FROM asking w CROSS JOIN LATERAL (
        SELECT a.run_id, a.key FROM waiting a
        WHERE w.webhook_id <> ALL (a.told) AND a.ready_at >= w.enabled_at
          AND (w.pipelines IS NULL OR a.pipeline = ANY (w.pipelines)) AND a.labels @> w.labels
        LIMIT $2) AS found)
SELECT u.webhook_id, u.content, r.run_id, r.pipeline, r.version, r.deadline_at, r.labels, s.key,
       s.ready_at, CASE WHEN u.content THEN left(coalesce(s.input, r.input)::text, $3) END AS about
FROM untold u
JOIN hocket.run r ON r.run_id = u.run_id
JOIN hocket.step s ON s.run_id = u.run_id AND s.key = u.key
"""
"""Approvals of a tenant that a webhook has not been told of, a few per webhook: those that do not fit
into a full queue are found every time, and must not delay the others. What each approval's webhooks
have been told is read once, from an index of its own, because it is read again at every look."""

Message = tuple[str, str, str, str | None, str | None, str]
"""Webhook id, message id, event, run, step, body."""

log = structlog.get_logger(__name__)
_reporting = Reporting()


async def run(context: Context) -> None:
    """Collect the ends of runs until cancelled."""
    ends = EndReader(context, ack_wait_ms=ACK_WAIT_MS)
    try:
        while True:
            try:
                if batch := await ends.batch():
                    await take(context, batch)
            except AWAY as error:
                log.warning("webhooks_wait", reason=str(error) or repr(error))
                await asyncio.sleep(PAUSE_S)
            except Exception:
                log.exception("webhooks_failed")
                await asyncio.sleep(PAUSE_S)
    finally:
        await ends.close()


async def take(context: Context, batch: Sequence[RawMessage]) -> None:
    """Write the messages about ends of runs, and acknowledge the ends."""
    by_tenant: dict[str, list[RawMessage]] = defaultdict(list)
    for message in batch:
        tokens = message.subject.split(".")
        by_tenant[tokens[2] if len(tokens) > 2 else ""].append(message)
    rows = await context.pool.fetch(INTERESTED, list(by_tenant), timeout=QUERY_TIMEOUT_S)
    webhooks: dict[str, list[asyncpg.Record]] = defaultdict(list)
    for row in rows:
        webhooks[row["tenant"]].append(row)
    found: list[Message] = []
    for tenant, interested in webhooks.items():
        for message in by_tenant[tenant]:
            found.extend(_told_of(message.data, interested))
            await asyncio.sleep(0)  # reading an end may take 10 ms
    kept, dropped = await with_room(context, found)
    await keep(context, kept, dropped)
    context.bus.ack(*(message.reply for message in batch))


def _told_of(end: bytes, webhooks: Sequence[asyncpg.Record]) -> list[Message]:
    """Return the messages about the end of a run; those with content share one body, as do the
    others."""
    try:
        run = RunFinished.model_validate_json(end)
    except ValidationError as error:
        if count := _reporting.due("end_malformed"):
            log.warning("end_malformed", reason=str(error.errors()[0]["type"]), count=count)
        return []
    event = messages.ENDS.get(run.status)
    if event is None:
        return []
    told: list[Message] = []
    texts: dict[bool, str] = {}
    for webhook in webhooks:
        if not _wants(webhook, event, run):
            continue
        content = webhook["content"]
        if content not in texts:
            at, data = messages.end(run, len(end), content=content)
            texts[content] = messages.body(event, at, data)
        message = messages.id_of_end(run)
        told.append((webhook["webhook_id"], message, event, run.run_id, None, texts[content]))
    return told


def _wants(webhook: asyncpg.Record, event: str, run: RunFinished) -> bool:
    labels = run.labels or {}
    return (
        event in webhook["events"]
        and run.finished_at_ms >= webhook["enabled_at"].timestamp() * 1_000
        and (webhook["pipelines"] is None or run.pipeline in webhook["pipelines"])
        and all(labels.get(key) == value for key, value in json.loads(webhook["labels"]).items())
    )


async def with_room(
    context: Context, found: Sequence[Message]
) -> tuple[list[Message], dict[str, int]]:
    """Return the messages that fit their webhooks' queues, and per webhook how many do not."""
    room = {
        row["webhook_id"]: MAX_WAITING - row["waiting"]
        for row in await context.pool.fetch(
            store.WAITING, list({one[0] for one in found}), MAX_WAITING, timeout=QUERY_TIMEOUT_S
        )
    }
    kept: list[Message] = []
    left: dict[str, int] = defaultdict(int)
    for one in found:
        if room[one[0]] > 0:
            room[one[0]] -= 1
            kept.append(one)
        else:
            left[one[0]] += 1
    return kept, left


async def keep(
    context: Context,
    kept: Sequence[Message],
    dropped: Mapping[str, int],
    not_before: datetime | None = None,
) -> None:
    """Write messages, in portions, and then how many were dropped per webhook; they are as old as
    `not_before` at most. If it fails halfway, what was written stays as it is when it is written
    again."""
    if not kept and not dropped:
        return
    now = await context.database_now(context.pool)
    created_at = now if not_before is None else max(now, not_before)
    for start in range(0, len(kept), KEPT_AT_ONCE):
        portion = kept[start : start + KEPT_AT_ONCE]
        await store.add(context.pool, portion, now, created_at)
    if dropped:
        for webhook_id, count in dropped.items():
            log.warning("webhook_events_dropped", webhook=webhook_id, count=count)
        values = (list(dropped), list(dropped.values()))
        await context.pool.execute(store.DROPPED, *values, timeout=QUERY_TIMEOUT_S)
    context.webhooks_asked.set()


async def run_approvals(context: Context) -> None:
    """Look for pending approvals until cancelled."""
    turns = Turns()
    while True:
        try:
            await take_approvals(context, turns)
        except AWAY as error:
            log.warning("webhooks_wait", reason=str(error) or repr(error))
        except Exception:
            log.exception("webhooks_failed")
        await asyncio.sleep(SWEEP_S)


class Turns:
    """When the approvals of each tenant are looked for again, by the clock of the event loop, in s. A
    look is followed by a rest, as if no other tenant's took longer: many approvals of one tenant delay
    only its own webhooks."""

    def __init__(self) -> None:
        self._took_s: dict[str, float] = {}
        self._rests_until_s: dict[str, float] = {}

    def due(self, tenants: Sequence[str], now_s: float) -> list[str]:
        """Return those of all tenants that do not rest now."""
        self._took_s = {one: self._took_s.get(one, 0.0) for one in tenants}
        self._rests_until_s = {one: self._rests_until_s.get(one, now_s) for one in tenants}
        return [one for one in tenants if self._rests_until_s[one] <= now_s]

    def looked(self, tenant: str, took_s: float, now_s: float) -> None:
        """Let a tenant rest after a look that took so long."""
        self._took_s[tenant] = took_s
        together_s = sum(min(took_s, other_s) for other_s in self._took_s.values())
        self._rests_until_s[tenant] = now_s + together_s / SWEEP_SHARE


async def take_approvals(context: Context, turns: Turns | None = None) -> None:
    """Write the messages about pending approvals, one tenant after the other; if those of one take too
    long, the others' follow all the same. Those that do not fit are found again later."""
    turns, clock_s = turns or Turns(), asyncio.get_running_loop().time
    rows = await context.pool.fetch(ASKING, timeout=QUERY_TIMEOUT_S)
    for tenant in turns.due([row["tenant"] for row in rows], clock_s()):
        began_s = clock_s()
        try:
            await _take_approvals_of(context, tenant)
        except AWAY as error:
            log.warning("webhooks_wait", tenant=tenant, reason=str(error) or repr(error))
        except Exception:
            log.exception("webhooks_failed", tenant=tenant)
        turns.looked(tenant, clock_s() - began_s, clock_s())


async def _take_approvals_of(context: Context, tenant: str) -> None:
    """Write the messages about the pending approvals of a tenant."""
    values = (tenant, APPROVALS_AT_ONCE, MAX_PART_CHARS)
    rows = await context.pool.fetch(APPROVALS, *values, timeout=QUERY_TIMEOUT_S)
    if not rows:
        return
    kept, _ = await with_room(context, [_approval(row) for row in rows])
    # The log's clock may be ahead of Postgres's: were a message older than its approval, the approval
    # would be found again each time, and many of them would keep all later ones waiting.
    await keep(context, kept, {}, max(row["ready_at"] for row in rows))


def _approval(row: asyncpg.Record) -> Message:
    event, since = "run.waiting", row["ready_at"]
    data = {
        "run_id": row["run_id"],
        "pipeline": row["pipeline"],
        "version": row["version"],
        "status": "running",
        "step": row["key"],
        "waiting_since": since.isoformat(),
        "deadline_at": row["deadline_at"].isoformat(),
        "labels": json.loads(row["labels"] or "{}"),
        "url": f"/v1/runs/{row['run_id']}",
    }
    if row["content"]:
        data["about"] = row["about"]
    message = messages.message_id(row["run_id"], "waiting", row["key"], since.isoformat())
    text = messages.body(event, since, data)
    return row["webhook_id"], message, event, row["run_id"], row["key"], text
