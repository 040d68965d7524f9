"""The page of models: backends, breakers, experiments, and the routing decisions of calls."""

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.backends.errors import GatewayAway
from hocket.admin.backends.gathering import gathered, gathered_rates
from hocket.admin.console.authors import names_of
from hocket.admin.console.page_route import page_router
from hocket.admin.console.rendering import render
from hocket.admin.console.views import model_list
from hocket.admin.context import Ctx
from hocket.admin.experiments.endpoints import list_experiments
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.schemas.access.roles import Permission
from hocket.schemas.messages import Priority

Name = Annotated[str, Query(max_length=200)]

router = page_router()


@router.get("/models")
@needs(Permission.MODELS_READ, Permission.COSTS_READ, Permission.EXPERIMENTS_READ)
async def console_models(
    request: Request, context: Ctx, caller: CallerDep, model: Name = "", backend: Name = ""
) -> Response:
    """Show the models and their replicas, and the latest decisions."""
    backends, experiments, rates = None, [], None
    try:
        backends = await gathered(context.bus)
        rates = await gathered_rates(context.bus, caller.bearer.tenant)
        experiments = list((await list_experiments(context, caller)).experiments)
    except GatewayAway:
        pass  # the page says so
    async with context.long_reads.place(caller.tenant):
        calls = await model_list.call_table(context.pool, caller.tenant)
        decisions = await model_list.decisions(
            context.pool, caller.tenant, model or None, backend or None
        )
    values = {
        "section": "Models",
        "backends": backends,
        "by": await names_of(
            context.pool, [one.by for one in backends.replicas] if backends else ()
        ),
        "classes": [one.value for one in Priority],
        "rates": rates.rates if rates else (),
        "may_control": caller.bearer.tenant is None
        and caller.bearer.may(Permission.MODELS_CONTROL),
        "experiments": experiments,
        "is_wide": caller.bearer.tenant is None,
        "calls": calls,
        "decisions": decisions,
        "model": model,
        "backend": backend,
    }
    return render(request, caller, "models.html", values)
