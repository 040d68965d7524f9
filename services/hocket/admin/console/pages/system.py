"""The pages of the platform's parts: workers, queues, dead letters, keys."""

from enum import StrEnum
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.console.authors import names_of
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.console.views import system_state
from hocket.admin.context import Context, Ctx
from hocket.admin.dead_letters import reads as dead_letters
from hocket.admin.dead_letters.endpoints import visible
from hocket.admin.health import reads as health
from hocket.admin.node_types import reads as node_types
from hocket.admin.pages import FAR_FUTURE
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.kit.access import key_store
from hocket.schemas.access.roles import Permission

MAX_LETTERS = 50
MAX_TYPES = 200
MAX_KEYS = 100


class Part(StrEnum):
    """The tabs of the page."""

    HEALTH = "health"
    WORKERS = "workers"
    LETTERS = "dead-letters"
    KEYS = "keys"
    AUDIT = "audit"

    @property
    def label(self) -> str:
        """The name on its tab."""
        return self.replace("-", " ").capitalize()

    @property
    def needs(self) -> Permission:
        """The permission needed to see it, in addition to that for the platform's state."""
        return {
            Part.LETTERS: Permission.DEAD_LETTERS_READ,
            Part.KEYS: Permission.KEYS_READ,
            Part.AUDIT: Permission.AUDIT_READ,
        }.get(self, Permission.PLATFORM_READ)


router = page_router()


@router.get("/system")
@needs(Permission.PLATFORM_READ)
async def console_system(
    request: Request, context: Ctx, caller: CallerDep, view: Part = Part.HEALTH
) -> Response:
    """Show one of the platform's sides."""
    caller.bearer.check(view.needs)
    values: dict[str, Any] = {
        "section": "System",
        "view": view,
        "views": [part for part in Part if caller.bearer.may(part.needs)],
    }
    values |= await _FOUND[view](context, caller)
    return render(request, caller, "system.html", values)


async def _health(context: Context, caller: Caller) -> dict[str, Any]:
    found = {"health": await health.system_health(context), "is_wide": caller.bearer.tenant is None}
    if not found["is_wide"]:
        return found  # streams and partitions are those of all tenants
    return found | {
        "partitions": await system_state.partitions(context.pool),
        "partitions_sql": system_state.PARTITIONS.strip(),
        "streams": await system_state.streams(context.bus),
    }


async def _workers(context: Context, _caller: Caller) -> dict[str, Any]:
    return {"types": node_types.list_types(context.node_types, "", MAX_TYPES).types}


async def _letters(context: Context, caller: Caller) -> dict[str, Any]:
    found = await dead_letters.list_latest(context.bus, caller.tenant, MAX_LETTERS)
    letters = [visible(letter, caller) for letter in found.dead_letters]
    return {"letters": letters, "is_full": found.next is not None}


async def _keys(context: Context, caller: Caller) -> dict[str, Any]:
    tenant = caller.tenant if caller.bearer.tenant else None
    rows = await key_store.list_latest(
        context.pool, tenant, all_states=True, before=(FAR_FUTURE, ""), limit=MAX_KEYS
    )
    return {"keys": [dict(row) for row in rows], "is_full": len(rows) == MAX_KEYS}


async def _audit(context: Context, caller: Caller) -> dict[str, Any]:
    entries = await system_state.latest_audit(context.pool, caller.bearer.tenant)
    named = [name for one in entries for name in (one.actor, one.target)]
    return {
        "entries": entries,
        "changes": {one.seq: system_state.change_of(one) for one in entries},
        "by": await names_of(context.pool, named),
    }


_FOUND = {
    Part.HEALTH: _health,
    Part.WORKERS: _workers,
    Part.LETTERS: _letters,
    Part.KEYS: _keys,
    Part.AUDIT: _audit,
}
