"""The pages of webhooks and their deliveries."""

from typing import Annotated

from fastapi import Path, Query, Request
from fastapi.responses import Response

from hocket.admin.console.authors import names_of
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import address, render
from hocket.admin.context import Ctx
from hocket.admin.pages import FAR_FUTURE, After, cursor, parse_cursor
from hocket.admin.queries import QUERY_TIMEOUT_S
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.webhooks import store
from hocket.schemas.access.roles import Permission
from hocket.schemas.administration.webhooks import RUN_EVENTS, DeliveryState

ROWS = 100
SECTION = "Webhooks"
Name = Annotated[str, Path(max_length=64)]

router = page_router()


@router.get("/webhooks")
@needs(Permission.WEBHOOKS_READ)
async def console_webhooks(
    request: Request, context: Ctx, caller: CallerDep, after: After = None
) -> Response:
    """List the webhooks, the latest first, each with how it fares."""
    before = (FAR_FUTURE, "") if after is None else parse_cursor(after)
    values = (caller.tenant, *before, ROWS + 1)
    rows = await context.pool.fetch(store.LATEST, *values, timeout=QUERY_TIMEOUT_S)
    last = rows[ROWS - 1] if len(rows) > ROWS else None
    shown = {
        "section": SECTION,
        "webhooks": [store.shown(row) for row in rows[:ROWS]],
        "events": len(RUN_EVENTS),
        "older": address(request, after=cursor(last["created_at"], last["webhook_id"]))
        if last
        else None,
    }
    return render(request, caller, "webhooks.html", shown)


@router.get("/webhooks/{name}")
@needs(Permission.WEBHOOKS_READ)
async def console_webhook(
    request: Request,
    name: Name,
    context: Ctx,
    caller: CallerDep,
    state: Annotated[DeliveryState | None, Query()] = None,
    after: After = None,
) -> Response:
    """Show a webhook with its messages, the latest first."""
    row = await store.find(context.pool, caller.tenant, name)
    webhook = store.shown(row)
    found = await store.list_deliveries(context.pool, row, state, after, ROWS)
    states = [
        (one or "all", address(request, state=one, after=None), one == state) for one in STATES
    ]
    values = {
        "section": SECTION,
        "webhook": webhook,
        "by": await names_of(context.pool, [webhook.changed_by]),
        "events": len(RUN_EVENTS),
        "deliveries": found.deliveries,
        "states": states,
        "older": address(request, after=found.next) if found.next else None,
    }
    return render(request, caller, "webhook.html", values)


STATES: tuple[DeliveryState | None, ...] = (None, "pending", "delivered", "dead")


@router.get("/webhooks/{name}/{message_id}")
@needs(Permission.WEBHOOKS_READ)
async def console_delivery(
    request: Request,
    name: Name,
    message_id: Annotated[str, Path(max_length=64)],
    context: Ctx,
    caller: CallerDep,
) -> Response:
    """Show one message: what is sent, and what came of it."""
    row = await store.find(context.pool, caller.tenant, name)
    found = await store.find_delivery(context.pool, row, message_id)
    delivery = store.detail(found, with_body=caller.sees_content)
    values = {"section": SECTION, "webhook": store.shown(row), "delivery": delivery}
    return render(request, caller, "delivery.html", values)
