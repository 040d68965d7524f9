"""Changes of webhooks by people, each in one transaction with its audit row. The audit contains no
secrets, and only the host of a URL, because the rest may be secret too."""

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from hocket.admin.context import Context
from hocket.admin.pages import FAR_FUTURE, in_range
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.etags import check_match, check_none_match
from hocket.admin.requests.identity import Caller
from hocket.admin.webhooks import intake, messages, store
from hocket.admin.webhooks.sending import check_target
from hocket.kit.access import audit_log
from hocket.kit.access.audit_log import Action
from hocket.kit.access.key_store import ENDS_SOON_S, second_after
from hocket.kit.access.secret_box import SecretBox
from hocket.schemas import ids
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.webhooks import MAX_WEBHOOKS, TEST_EVENT, WebhookBody
from hocket.schemas.errors import ErrorClass, HocketError

REDELIVERED_AT_ONCE = 1_000
"""Deliveries that one request retries."""


class WebhooksFull(HocketError):
    """The tenant has {most} webhooks, which is the limit. Delete one: `DELETE /v1/webhooks/NAME`."""

    code = "webhooks_full"
    error_class = ErrorClass.INVALID


class WebhookQueueFull(HocketError):
    """{most} messages wait for the webhook `{name}`, which is the limit. Its deliveries say why:
    `GET /v1/webhooks/{name}/deliveries`. Send the test once some of them have gone."""

    code = "webhook_queue_full"
    error_class = ErrorClass.INVALID


class WebhookInRotation(HocketError):
    """Messages of the webhook `{name}` are also signed with its former secret until {until}, which
    another rotation would end. Rotate it after that, or end both secrets now: `hocket webhooks rotate
    {name} --overlap-s 0`."""

    code = "webhook_in_rotation"
    error_class = ErrorClass.INVALID


async def put(
    context: Context,
    caller: Caller,
    name: str,
    body: WebhookBody,
    *,
    if_match: str | None,
    if_none_match: str | None,
) -> tuple[asyncpg.Record, str | None]:
    """Create or replace a webhook; return its row, and its secret if it is new. Raises InvalidInput,
    PermissionMissing, PreconditionFailed and WebhooksFull."""
    check_target(body.url, context.webhook_private_hosts)
    if body.content:
        caller.bearer.check(Permission.CONTENT_READ)
    async with _transaction(context) as connection:
        former = await connection.fetchrow(store.LOCKED, caller.tenant, name)
        _check(former, if_match, if_none_match)
        row, secret = None, secrets.token_bytes(messages.SECRET_BYTES)
        if former is None:
            row = await _insert(context, connection, caller, name, body, secret)
            if row is None:  # another request has created it meanwhile
                former = await store.find(connection, caller.tenant, name, lock=True)
                _check(former, if_match, if_none_match)
        if former is not None:
            if _said_by(body, former) == _said_of(former):
                return former, None
            row = await _replace(context, connection, caller, former, body)
        assert row is not None, "it is new, or was replaced"
        done = "webhooks.create" if former is None else "webhooks.change"
        before = None if former is None else _audited(former)
        await _record(connection, caller, done, name, before, _audited(row))
    return row, messages.secret_text(secret) if former is None else None


async def switch(
    context: Context, caller: Caller, name: str, *, enabled: bool, if_match: str | None
) -> asyncpg.Record:
    """Enable a webhook, or disable it; return its row. Raises WebhookUnknown and PreconditionFailed."""
    async with _transaction(context) as connection:
        former = await store.find(connection, caller.tenant, name, lock=True)
        check_match(if_match, former["revision"])
        if former["enabled"] == enabled:
            return former
        reason = "" if enabled else "by hand"
        now = await context.database_now(connection)
        values = (former["webhook_id"], enabled, reason, caller.name, now)
        row = await connection.fetchrow(store.SWITCH, *values)
        done = "webhooks.enable" if enabled else "webhooks.disable"
        await _record(connection, caller, done, name, None, None)
    context.webhooks_asked.set()
    return row


async def rotate(
    context: Context, caller: Caller, name: str, overlap_s: float
) -> tuple[asyncpg.Record, str]:
    """Give a webhook a new secret; messages are also signed with the old one for `overlap_s`, or for 0
    with no other. Raises WebhookUnknown, and WebhookInRotation if an earlier one signs for longer than
    ENDS_SOON_S."""
    secret = secrets.token_bytes(messages.SECRET_BYTES)
    async with _transaction(context) as connection:
        former = await store.find(connection, caller.tenant, name, lock=True)
        now, webhook_id = await context.database_now(connection), former["webhook_id"]
        signs_until, soon = former["former_until"], now + timedelta(seconds=ENDS_SOON_S)
        if overlap_s and signs_until is not None and signs_until > soon:
            raise WebhookInRotation(name=name, until=second_after(signs_until))
        until = now + timedelta(seconds=overlap_s)
        values = (
            webhook_id,
            box(context).seal(secret, store.owner_of(webhook_id)),
            former["secret"] if overlap_s else None,
            until if overlap_s else None,
            caller.name,
            now,
        )
        row = await connection.fetchrow(store.ROTATE, *values)
        told = {"former_until": until.isoformat() if overlap_s else None}
        await _record(connection, caller, "webhooks.rotate", name, None, told)
    return row, messages.secret_text(secret)


async def delete(context: Context, caller: Caller, name: str, *, if_match: str | None) -> None:
    """Delete a webhook; its deliveries go later. Raises WebhookUnknown and PreconditionFailed."""
    async with _transaction(context) as connection:
        await connection.execute(store.LOCK, caller.tenant)
        row = await store.find(connection, caller.tenant, name, lock=True)
        check_match(if_match, row["revision"])
        now = await context.database_now(connection)
        await connection.execute(store.DELETE, row["webhook_id"], caller.name, now)
        await _record(connection, caller, "webhooks.delete", name, _audited(row), None)


async def test(context: Context, caller: Caller, name: str) -> asyncpg.Record:
    """Send a test message to a webhook; return the delivery. Raises WebhookUnknown and
    WebhookQueueFull."""
    message = messages.message_id("test", uuid4().hex)
    async with _transaction(context) as connection:
        row = await store.find(connection, caller.tenant, name, lock=True)
        most = intake.MAX_WAITING
        queue = await connection.fetchrow(store.WAITING, [row["webhook_id"]], most)
        if queue["waiting"] >= most:
            raise WebhookQueueFull(most=most, name=name)
        now = await context.database_now(connection)
        text = messages.body(TEST_EVENT, now, {"webhook": name})
        told = (row["webhook_id"], message, TEST_EVENT, None, None, text)
        await store.add(connection, [told], now)
        found = await connection.fetchrow(store.DELIVERY, row["webhook_id"], message)
        await _record(connection, caller, "webhooks.test", name, None, {"message": message})
    context.webhooks_asked.set()
    return found


async def redeliver(context: Context, caller: Caller, name: str, message_id: str) -> asyncpg.Record:
    """Send a message again, with a fresh set of tries; return the delivery. Raises WebhookUnknown and
    DeliveryUnknown."""
    async with _transaction(context) as connection:
        row = await store.find(connection, caller.tenant, name)
        now = await context.database_now(connection)
        found = await connection.fetchrow(store.AGAIN, row["webhook_id"], message_id, now)
        if found is None:
            raise store.DeliveryUnknown(message_id=message_id)
        told = {"message": message_id}
        await _record(connection, caller, "webhooks.redeliver", name, None, told)
    context.webhooks_asked.set()
    return found


async def redeliver_dead(
    context: Context, caller: Caller, name: str, since: datetime, until: datetime | None
) -> int:
    """Send the dead messages of a time range again; return how many. Raises WebhookUnknown."""
    async with _transaction(context) as connection:
        row = await store.find(connection, caller.tenant, name)
        now = await context.database_now(connection)
        before = FAR_FUTURE if until is None else in_range(until)
        values = (row["webhook_id"], in_range(since), before, now, REDELIVERED_AT_ONCE)
        done = await connection.execute(store.ALL_AGAIN, *values, timeout=QUERY_TIMEOUT_S)
        count = int(done.rpartition(" ")[2])
        told = {"since": str(since), "until": str(before), "deliveries": count}
        await _record(connection, caller, "webhooks.redeliver", name, None, told)
    context.webhooks_asked.set()
    return count


def box(context: Context) -> SecretBox:
    """Return the box that encrypts secrets."""
    assert context.secrets is not None, "the process has the platform's key"
    return context.secrets


@asynccontextmanager
async def _transaction(context: Context) -> AsyncIterator[asyncpg.Connection]:
    async with (
        context.pool.acquire(timeout=QUERY_TIMEOUT_S) as connection,
        connection.transaction(),
    ):
        yield connection


def _check(row: asyncpg.Record | None, if_match: str | None, if_none_match: str | None) -> None:
    revision = None if row is None else row["revision"]
    check_match(if_match, revision)
    check_none_match(if_none_match, revision)


async def _insert(
    context: Context,
    connection: asyncpg.Connection,
    caller: Caller,
    name: str,
    body: WebhookBody,
    secret: bytes,
) -> asyncpg.Record | None:
    await connection.execute(store.LOCK, caller.tenant)
    if await connection.fetchval(store.COUNT, caller.tenant) >= MAX_WEBHOOKS:
        raise WebhooksFull(most=MAX_WEBHOOKS)
    webhook_id = f"w{uuid4().hex[:24]}"
    sealed = box(context).seal(secret, store.owner_of(webhook_id))
    now = await context.database_now(connection)
    values = (webhook_id, caller.tenant, name, *_values(body), sealed, caller.name, now)
    return await connection.fetchrow(store.INSERT, *values)


async def _replace(
    context: Context,
    connection: asyncpg.Connection,
    caller: Caller,
    former: asyncpg.Record,
    body: WebhookBody,
) -> asyncpg.Record:
    now = await context.database_now(connection)
    values = (former["webhook_id"], *_values(body, former), caller.name, now)
    row = await connection.fetchrow(store.REPLACE, *values)
    if row["enabled"] != former["enabled"]:
        reason = "" if row["enabled"] else "by hand"
        values = (former["webhook_id"], row["enabled"], reason, caller.name, now)
        row = await connection.fetchrow(store.SWITCH, *values)
    return row


def _values(body: WebhookBody, former: asyncpg.Record | None = None) -> tuple[Any, ...]:
    enabled = body.enabled
    if enabled is None:
        enabled = former is None or former["enabled"]
    return (
        body.url,
        body.description,
        list(dict.fromkeys(body.events)),
        None if body.pipelines is None else list(dict.fromkeys(body.pipelines)),
        json.dumps(body.labels),
        body.content,
        enabled,
    )


SAID = ("url", "description", "events", "pipelines", "labels", "content", "enabled")


def _said_by(body: WebhookBody, former: asyncpg.Record) -> dict[str, Any]:
    said = dict(zip(SAID, _values(body, former), strict=True))
    return {**said, "labels": body.labels}


def _said_of(row: asyncpg.Record) -> dict[str, Any]:
    return {**{name: row[name] for name in SAID}, "labels": json.loads(row["labels"])}


def _audited(row: asyncpg.Record) -> dict[str, Any]:
    url = urlsplit(row["url"])
    place = {"host": url.netloc, "sha256": ids.content_hash(row["url"])}
    return {**_said_of(row), "url": place}


async def _record(
    connection: asyncpg.Connection,
    caller: Caller,
    action: str,
    name: str,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    done = Action(action, f"webhook:{name}", caller.tenant, before=before, after=after)
    await audit_log.record(connection, caller.actor, done)
