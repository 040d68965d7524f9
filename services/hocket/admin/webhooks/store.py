"""The tables of webhooks and of their deliveries."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from hocket.admin.pages import FAR_FUTURE, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S, Pool
from hocket.schemas.administration.webhooks import (
    Delivery,
    DeliveryDetail,
    DeliveryList,
    Webhook,
)
from hocket.schemas.errors import ErrorClass, HocketError

DELETED = "deleted"
"""The `disabled_reason` of a deleted webhook, which nobody sees any more. Its row is deleted once its
deliveries are."""

INSERT = """
INSERT INTO hocket.webhook (webhook_id, tenant, name, url, description, events, pipelines, labels,
    content, enabled, secret, created_by, changed_by, created_at, enabled_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $13)
ON CONFLICT (tenant, name) DO NOTHING
RETURNING *
"""
REPLACE = """
UPDATE hocket.webhook SET url = $2, description = $3, events = $4, pipelines = $5, labels = $6,
    content = $7, enabled = $8, changed_by = $9, changed_at = $10, revision = revision + 1,
    failing_since = CASE WHEN url = $2 THEN failing_since END
WHERE webhook_id = $1
RETURNING *
"""
SWITCH = """
UPDATE hocket.webhook SET enabled = $2, disabled_reason = $3, changed_by = $4, changed_at = $5,
    failing_since = CASE WHEN $2 THEN NULL ELSE failing_since END,
    enabled_at = CASE WHEN $2 THEN $5 ELSE enabled_at END, revision = revision + 1
WHERE webhook_id = $1
RETURNING *
"""
ROTATE = """
UPDATE hocket.webhook SET secret = $2, former_secret = $3, former_until = $4, changed_by = $5,
    changed_at = $6, revision = revision + 1
WHERE webhook_id = $1
RETURNING *
"""
FOUND = f"""
SELECT * FROM hocket.webhook WHERE tenant = $1 AND name = $2 AND disabled_reason <> '{DELETED}'
"""
LOCKED = f"{FOUND} FOR UPDATE"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('webhooks of ' || $1, 0))"
"""Serializes creation and deletion of a tenant's webhooks, so that counting them is exact, and a new
one goes on from the revision of a deleted one (migration 0068)."""
COUNT = f"SELECT count(*) FROM hocket.webhook WHERE tenant = $1 AND disabled_reason <> '{DELETED}'"
DELETE = f"""
UPDATE hocket.webhook SET name = 'deleted ' || webhook_id, enabled = false,
    disabled_reason = '{DELETED}', changed_by = $2, changed_at = $3, revision = revision + 1,
    secret = '', former_secret = NULL, former_until = NULL
WHERE webhook_id = $1
"""
"""Hide a webhook from everybody, and free its name; `upkeep.py` deletes it. Deleting it at once, with
all its deliveries, takes seconds, during which nobody can write any."""
LATEST = f"""
SELECT * FROM hocket.webhook
WHERE tenant = $1 AND (created_at, webhook_id) < ($2, $3) AND disabled_reason <> '{DELETED}'
ORDER BY created_at DESC, webhook_id DESC LIMIT $4
"""

DELIVERIES = f"""
SELECT {", ".join(Delivery.model_fields)} FROM hocket.webhook_delivery
WHERE webhook_id = $1 AND (created_at, message_id) < ($2, $3) AND ($5::text IS NULL OR state = $5)
ORDER BY created_at DESC, message_id DESC LIMIT $4
"""
DELIVERY = "SELECT * FROM hocket.webhook_delivery WHERE webhook_id = $1 AND message_id = $2"
AGAIN = """
UPDATE hocket.webhook_delivery SET state = 'pending', attempts = 0, next_at = $3,
    leased_until = '-infinity'
WHERE webhook_id = $1 AND message_id = $2
RETURNING *
"""
ALL_AGAIN = """
UPDATE hocket.webhook_delivery SET state = 'pending', attempts = 0, next_at = $4,
    leased_until = '-infinity'
WHERE webhook_id = $1 AND message_id = ANY (ARRAY(
    SELECT message_id FROM hocket.webhook_delivery
    WHERE webhook_id = $1 AND state = 'dead' AND created_at >= $2 AND created_at < $3
    ORDER BY created_at LIMIT $5))
"""

ADD = f"""
WITH w AS MATERIALIZED (
    SELECT webhook_id, tenant FROM hocket.webhook
    WHERE webhook_id = ANY ($1::text[]) AND disabled_reason <> '{DELETED}'
    ORDER BY webhook_id FOR KEY SHARE)
INSERT INTO hocket.webhook_delivery
    (webhook_id, message_id, tenant, event, run_id, step, body, next_at, created_at)
SELECT w.webhook_id, m.message_id, w.tenant, m.event, m.run_id, m.step, m.body, $8, $9
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[])
    AS m (webhook_id, message_id, event, run_id, step, body, place)
JOIN w ON w.webhook_id = m.webhook_id
ORDER BY m.webhook_id, m.place
ON CONFLICT DO NOTHING
"""
"""Add messages for webhooks that still exist; a message added before stays as it is. The webhooks are
locked first, so that none vanishes meanwhile, which would fail the statement."""
WAITING = """
SELECT w.webhook_id, (
    SELECT count(*) FROM (
        SELECT FROM hocket.webhook_delivery d
        WHERE d.webhook_id = w.webhook_id AND d.state = 'pending' LIMIT $2) AS found) AS waiting
FROM unnest($1::text[]) AS w (webhook_id)
"""
DROPPED = """
WITH w AS MATERIALIZED (
    SELECT webhook_id FROM hocket.webhook WHERE webhook_id = ANY ($1::text[])
    ORDER BY webhook_id FOR NO KEY UPDATE)
UPDATE hocket.webhook SET dropped = dropped + left_out.count
FROM w JOIN unnest($1::text[], $2::bigint[]) AS left_out (webhook_id, count) USING (webhook_id)
WHERE hocket.webhook.webhook_id = w.webhook_id
"""


class WebhookUnknown(HocketError):
    """There is no webhook `{name}`. `hocket webhooks list` and `GET /v1/webhooks` show
    those that exist."""

    code = "webhook_unknown"
    error_class = ErrorClass.INVALID


class DeliveryUnknown(HocketError):
    """The webhook has no message `{message_id}`. Its deliveries are listed for 14 days."""

    code = "delivery_unknown"
    error_class = ErrorClass.INVALID


async def find(
    connection: "Pool | asyncpg.Connection", tenant: str, name: str, *, lock: bool = False
) -> asyncpg.Record:
    """Return the row of a webhook, locked on request; raise WebhookUnknown."""
    query = LOCKED if lock else FOUND
    row = await connection.fetchrow(query, tenant, name, timeout=QUERY_TIMEOUT_S)
    if row is None:
        raise WebhookUnknown(name=name)
    return row


async def list_deliveries(
    pool: Pool, row: asyncpg.Record, state: str | None, after: str | None, limit: int
) -> DeliveryList:
    """Return a page of a webhook's deliveries, latest first."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    values = (row["webhook_id"], *before, limit + 1, state)
    rows = await pool.fetch(DELIVERIES, *values, timeout=QUERY_TIMEOUT_S)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    more = None if last is None else cursor(last["created_at"], last["message_id"])
    return DeliveryList(deliveries=tuple(shown_delivery(one) for one in page), next=more)


async def find_delivery(pool: Pool, row: asyncpg.Record, message_id: str) -> asyncpg.Record:
    """Return a delivery of a webhook, or raise DeliveryUnknown."""
    found = await pool.fetchrow(DELIVERY, row["webhook_id"], message_id, timeout=QUERY_TIMEOUT_S)
    if found is None:
        raise DeliveryUnknown(message_id=message_id)
    return found


async def add(
    connection: "Pool | asyncpg.Connection",
    messages: Sequence[tuple[str, str, str, str | None, str | None, str]],
    now: datetime,
    created_at: datetime | None = None,
) -> None:
    """Add messages, given as webhook id, message id, event, run, step and body; they are due now."""
    columns = [list(column) for column in zip(*messages, strict=True)]
    places = list(range(len(messages)))
    values = (*columns, places, now, created_at or now)
    await connection.execute(ADD, *values, timeout=QUERY_TIMEOUT_S)


def owner_of(webhook_id: str) -> str:
    """Return the owner under which a webhook's secrets are encrypted."""
    return f"webhook {webhook_id}"


def shown(row: asyncpg.Record) -> Webhook:
    """Return a webhook as callers see it: without its secrets."""
    return Webhook(**_told(row))


def _told(row: asyncpg.Record) -> dict[str, Any]:
    told: dict[str, Any] = dict(row)
    own = {name: told[name] for name in Webhook.model_fields if name != "labels"}
    return {**own, "labels": json.loads(told["labels"])}


def told_with(row: asyncpg.Record, **more: Any) -> dict[str, Any]:
    """Return the fields of a webhook as callers see it, and further ones."""
    return {**_told(row), **more}


def shown_delivery(row: asyncpg.Record) -> Delivery:
    """Return a delivery as callers see it."""
    return Delivery(**_delivery(row))


def detail(row: asyncpg.Record, *, with_body: bool) -> DeliveryDetail:
    """Return a delivery, with the body that is sent if the reader may see it."""
    return DeliveryDetail(**_delivery(row), body=json.loads(row["body"]) if with_body else None)


def _delivery(row: asyncpg.Record) -> dict[str, Any]:
    told: dict[str, Any] = dict(row)
    own = {name: told[name] for name in Delivery.model_fields}
    return own if own["state"] == "pending" else {**own, "next_at": None}
