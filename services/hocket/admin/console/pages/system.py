"""The platform's parts, and what could not be handled."""

from fastapi import Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.context import Ctx
from hocket.admin.dead_letters import reads as dead_letters
from hocket.admin.dead_letters.endpoints import visible
from hocket.admin.health import reads as health
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission

MAX_LETTERS = 50

router = page_router()


@router.get("/system")
@needs(Permission.PLATFORM_READ, Permission.DEAD_LETTERS_READ)
async def console_system(request: Request, context: Ctx, caller: CallerDep) -> Response:
    """Show the platform's parts and what could not be handled."""
    found = await dead_letters.list_latest(context.bus, caller.tenant, MAX_LETTERS, None)
    letters = [visible(letter, caller) for letter in found]
    values = {
        "section": "System",
        "health": await health.system_health(context),
        "letters": letters,
    }
    return render(request, caller, "system.html", values)
