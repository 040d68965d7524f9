"""`/v1/webhooks`: who is notified about runs by HTTP, and the deliveries."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from hocket.admin.context import Ctx
from hocket.admin.pages import DEFAULT_PAGE, FAR_FUTURE, After, Limit, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.etags import ETAG, IfMatch, IfNoneMatch, etag
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.json_bodies import PlainJsonRoute
from hocket.admin.requests.permissions import needs
from hocket.admin.webhooks import changes, store
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.webhooks import (
    Delivery,
    DeliveryDetail,
    DeliveryList,
    DeliveryState,
    RedeliverBody,
    Redelivered,
    RotateSecretBody,
    Webhook,
    WebhookBody,
    WebhookList,
    WebhookMade,
)
from hocket.schemas.rest import Token

Name = Annotated[Token, Path(description="Name of the webhook, unique in its tenant.")]
MessageId = Annotated[
    str,
    Path(
        pattern=r"^msg_[0-9a-f]{24}$",
        description="ID of the message, as sent in the header `webhook-id`.",
    ),
]

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=PlainJsonRoute)


@router.get("")
@needs(Permission.WEBHOOKS_READ)
async def list_webhooks(
    context: Ctx, caller: CallerDep, after: After = None, limit: Limit = DEFAULT_PAGE
) -> WebhookList:
    """List webhooks, newest first."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    values = (caller.tenant, *before, limit + 1)
    rows = await context.pool.fetch(store.LATEST, *values, timeout=QUERY_TIMEOUT_S)
    last = rows[limit - 1] if len(rows) > limit else None
    more = None if last is None else cursor(last["created_at"], last["webhook_id"])
    return WebhookList(webhooks=tuple(store.shown(row) for row in rows[:limit]), next=more)


@router.put("/{name}", responses={201: {"model": WebhookMade}})
@needs(Permission.WEBHOOKS_MANAGE)
async def put_webhook(
    name: Name,
    body: WebhookBody,
    response: Response,
    context: Ctx,
    caller: CallerDep,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> WebhookMade:
    """Create a webhook (201, with its secret, which is shown only once), or replace it. It receives
    events from then on."""
    row, secret = await changes.put(
        context, caller, name, body, if_match=if_match, if_none_match=if_none_match
    )
    response.status_code = 200 if secret is None else 201
    response.headers[ETAG] = etag(row["revision"])
    return WebhookMade(**store.told_with(row, secret=secret))


@router.get("/{name}")
@needs(Permission.WEBHOOKS_READ)
async def show_webhook(name: Name, response: Response, context: Ctx, caller: CallerDep) -> Webhook:
    """Show a webhook."""
    row = await store.find(context.pool, caller.tenant, name)
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row)


@router.delete("/{name}", status_code=204)
@needs(Permission.WEBHOOKS_MANAGE)
async def delete_webhook(
    name: Name, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> None:
    """Delete a webhook and its deliveries; undelivered messages are not sent."""
    await changes.delete(context, caller, name, if_match=if_match)


@router.post("/{name}/enable")
@needs(Permission.WEBHOOKS_MANAGE)
async def enable_webhook(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> Webhook:
    """Enable a webhook. Waiting messages are sent, and it receives new events from now on."""
    row = await changes.switch(context, caller, name, enabled=True, if_match=if_match)
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row)


@router.post("/{name}/disable")
@needs(Permission.WEBHOOKS_MANAGE)
async def disable_webhook(
    name: Name, response: Response, context: Ctx, caller: CallerDep, if_match: IfMatch = None
) -> Webhook:
    """Disable a webhook: nothing is sent, and no new events are stored for it."""
    row = await changes.switch(context, caller, name, enabled=False, if_match=if_match)
    response.headers[ETAG] = etag(row["revision"])
    return store.shown(row)


@router.post("/{name}/rotate")
@needs(Permission.WEBHOOKS_MANAGE)
async def rotate_webhook_secret(
    name: Name, context: Ctx, caller: CallerDep, body: RotateSecretBody | None = None
) -> WebhookMade:
    """Issue a new secret for a webhook, which is shown only once. Messages are also signed with the
    former secret for `overlap_s` seconds. Until 5 minutes before their end, the webhook is rotated again
    (409) only with an `overlap_s` of 0, which ends all secrets but the new one."""
    overlap_s = (body or RotateSecretBody()).overlap_s
    row, secret = await changes.rotate(context, caller, name, overlap_s)
    return WebhookMade(**store.told_with(row, secret=secret))


@router.post("/{name}/test", status_code=202)
@needs(Permission.WEBHOOKS_MANAGE)
async def test_webhook(name: Name, context: Ctx, caller: CallerDep) -> Delivery:
    """Send a message of type `webhook.test`. While the webhook is disabled, the message waits:
    `state` stays `pending`."""
    return store.shown_delivery(await changes.test(context, caller, name))


@router.post("/{name}/redeliver", status_code=202)
@needs(Permission.WEBHOOKS_MANAGE)
async def redeliver_dead(
    name: Name, body: RedeliverBody, context: Ctx, caller: CallerDep
) -> Redelivered:
    """Send dead messages of a period again, oldest first, up to 1,000 messages."""
    count = await changes.redeliver_dead(context, caller, name, body.since, body.until)
    return Redelivered(deliveries=count)


@router.get("/{name}/deliveries")
@needs(Permission.WEBHOOKS_READ)
async def list_deliveries(
    name: Name,
    context: Ctx,
    caller: CallerDep,
    state: Annotated[
        DeliveryState | None, Query(description="Only deliveries in this state.")
    ] = None,
    after: After = None,
    limit: Limit = DEFAULT_PAGE,
) -> DeliveryList:
    """List a webhook's deliveries of the last 14 days, newest first; `state=dead` lists those that were
    given up on."""
    row = await store.find(context.pool, caller.tenant, name)
    return await store.list_deliveries(context.pool, row, state, after, limit)


@router.get("/{name}/deliveries/{message_id}")
@needs(Permission.WEBHOOKS_READ)
async def show_delivery(
    name: Name, message_id: MessageId, context: Ctx, caller: CallerDep
) -> DeliveryDetail:
    """Show a delivery with its payload."""
    row = await store.find(context.pool, caller.tenant, name)
    found = await store.find_delivery(context.pool, row, message_id)
    return store.detail(found, with_body=caller.sees_content)


@router.post("/{name}/deliveries/{message_id}/redeliver", status_code=202)
@needs(Permission.WEBHOOKS_MANAGE)
async def redeliver(name: Name, message_id: MessageId, context: Ctx, caller: CallerDep) -> Delivery:
    """Send a message again, under the same ID, whether or not it was delivered."""
    return store.shown_delivery(await changes.redeliver(context, caller, name, message_id))
