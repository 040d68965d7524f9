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
from contextlib import suppress
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
"""The maximum share of its time that a process spends looking for approvals."""
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
APPROVALS = """
SELECT w.webhook_id, w.content, found.run_id, found.pipeline, found.version, found.deadline_at,
       found.labels, found.key, found.ready_at,
       CASE WHEN w.content THEN left(coalesce(found.step_input, found.input)::text, $2) END AS about
FROM hocket.webhook w
CROSS JOIN LATERAL (
    SELECT r.run_id, r.pipeline, r.version, r.deadline_at, r.labels, r.input, s.input AS step_input,
           s.key, s.ready_at
    FROM hocket.run r JOIN hocket.step s ON s.run_id = r.run_id
    WHERE r.tenant = w.tenant AND r.finished_at IS NULL
      AND s.state = 'waiting' AND s.type = 'approval' AND s.ready_at >= w.enabled_at
      AND (w.pipelines IS NULL OR r.pipeline = ANY (w.pipelines))
      AND coalesce(r.labels, '{}') @> w.labels
      AND NOT EXISTS (
          SELECT FROM hocket.webhook_delivery d
          WHERE d.run_id = r.run_id AND d.webhook_id = w.webhook_id AND d.step = s.key
            AND d.event = 'run.waiting' AND d.created_at >= s.ready_at)
    LIMIT $1) AS found
WHERE w.enabled AND 'run.waiting' = ANY (w.events)
"""
"""Approvals that a webhook has not been told of, a few per webhook: those that do not fit into a full
queue are found every time, and must not delay the others."""

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
    created_at: datetime | None = None,
) -> None:
    """Write messages, in portions, and then how many were dropped per webhook. If it fails halfway, what
    was written stays as it is when it is written again."""
    if not kept and not dropped:
        return
    for start in range(0, len(kept), KEPT_AT_ONCE):
        portion = kept[start : start + KEPT_AT_ONCE]
        await store.add(context.pool, portion, context.now(), created_at)
    if dropped:
        for webhook_id, count in dropped.items():
            log.warning("webhook_events_dropped", webhook=webhook_id, count=count)
        values = (list(dropped), list(dropped.values()))
        await context.pool.execute(store.DROPPED, *values, timeout=QUERY_TIMEOUT_S)
    context.webhooks_asked.set()


async def run_approvals(context: Context) -> None:
    """Look for pending approvals until cancelled."""
    clock_s = asyncio.get_running_loop().time
    while True:
        began_s = clock_s()
        try:
            await take_approvals(context)
        except AWAY as error:
            log.warning("webhooks_wait", reason=str(error) or repr(error))
        except Exception:
            log.exception("webhooks_failed")
        with suppress(TimeoutError):
            await asyncio.sleep(max(SWEEP_S, (clock_s() - began_s) / SWEEP_SHARE))


async def take_approvals(context: Context) -> None:
    """Write the messages about pending approvals; those that do not fit are found again later."""
    rows = await context.pool.fetch(
        APPROVALS, APPROVALS_AT_ONCE, MAX_PART_CHARS, timeout=QUERY_TIMEOUT_S
    )
    kept, _ = await with_room(context, [_approval(row) for row in rows])
    # The log's clock may be ahead of this one: were a message older than its approval, the approval
    # would be found again each time, and many of them would keep all later ones waiting.
    created_at = max((context.now(), *(row["ready_at"] for row in rows)))
    await keep(context, kept, {}, created_at)


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
