"""The playground's page, and the calls made from it."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.playground import call
from hocket.admin.console.playground.price import explained
from hocket.admin.console.rendering import render
from hocket.admin.console.views import model_list
from hocket.admin.context import Ctx
from hocket.admin.live.endpoints import EventStream
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.messages import Priority

router = page_router()


@router.get("/playground")
@needs(Permission.MODELS_CALL, Permission.MODELS_READ, Permission.COSTS_READ, Permission.RUNS_READ)
async def console_playground(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    model: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Show the form of a call to one of the models that the caller may call."""
    gateway = await model_list.gateway_view(context.bus)
    may_call = caller.bearer.models
    found = [
        one
        for one in (gateway.models if gateway else ())
        if may_call is None or one["name"] in may_call
    ]
    values = {
        "section": "Playground",
        "gateway": gateway,
        "models": found,
        "chosen": model,
        "priorities": tuple(Priority),
        "most_chars": call.MAX_PROMPT_CHARS,
    }
    return render(request, caller, "playground.html", values)


@router.post("/playground/calls")
@needs(Permission.MODELS_CALL, Permission.MODELS_READ, Permission.COSTS_READ, Permission.RUNS_READ)
async def console_playground_call(
    request: Request, context: Ctx, caller: CallerDep, wanted: call.PlaygroundCall
) -> Response:
    """Make a call for the caller's tenant: its answer, its price and its decision as events."""
    call.check_model(caller, wanted.model)
    gateway = await model_list.gateway_view(context.bus)

    def part(template: str, values: Mapping[str, Any]) -> str:
        given = {"section": "Playground", "explained": explained, **values}
        return bytes(render(request, caller, template, given).body).decode()

    prices = gateway.prices if gateway else {}
    return EventStream(call.stream(context, caller, wanted, prices, part))
