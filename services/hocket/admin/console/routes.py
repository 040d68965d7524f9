"""The console's addresses. They show what the API shows, to the same caller; whatever is done from a
page is a request to the API itself."""

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import Field

from hocket.admin.calls import reads as calls
from hocket.admin.console import money, pipeline_list, run_list, run_page, timeline
from hocket.admin.console.assets import serve_asset
from hocket.admin.console.graph import graph_of
from hocket.admin.console.page_route import PageRoute
from hocket.admin.console.rendering import ASSETS, BASE, render
from hocket.admin.console.sessions import COOKIE, SESSION_S, Sessions
from hocket.admin.context import Ctx
from hocket.admin.costs import reads as costs
from hocket.admin.dead_letters import reads as dead_letters
from hocket.admin.dead_letters.endpoints import visible
from hocket.admin.health import reads as health
from hocket.admin.pages import After, in_range
from hocket.admin.pipelines import reads as pipelines
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import Moment, Switch, VersionNumber
from hocket.admin.requests.permissions import needs, public
from hocket.admin.runs import reads as runs
from hocket.admin.runs.content import shown
from hocket.admin.runs.endpoints import RunId, Status
from hocket.schemas.access.keys import Principal
from hocket.schemas.access.roles import Permission
from hocket.schemas.bounded import MAX_STEP_CHARS
from hocket.schemas.errors import InvalidInput
from hocket.schemas.rest import Request as Body
from hocket.schemas.rest import Token

ROWS = 50
"""Rows of a list on one page."""
STEP_ROWS = 200
MAX_CALLS = 500
MAX_LETTERS = 50
MAX_DOLLARS = 10**12
STATUSES = get_args(Status)
VIEWS = (
    ("timeline", "Timeline"),
    ("steps", "Steps"),
    ("calls", "Model calls"),
    ("values", "Values"),
)
View = Literal["timeline", "steps", "calls", "values"]
Period = Literal["15m", "1h", "6h", "24h", "7d", "30d"]
StepName = Annotated[str, Path(max_length=MAX_STEP_CHARS)]
Choice = Annotated[str, Query(max_length=64)]


def _sessions(request: Request) -> Sessions:
    found = request.app.state.sessions
    assert isinstance(found, Sessions)
    return found


SessionsDep = Annotated[Sessions, Depends(_sessions)]


class SignIn(Body):
    """What the page of `sign-in` sends."""

    key: str = Field(max_length=200)
    back: str = Field("", max_length=2_000)


router = APIRouter(prefix=BASE, include_in_schema=False, route_class=PageRoute)
router.add_route(ASSETS + "{digest}/{name:path}", serve_asset, methods=["GET"])


@router.get("")
@needs(Permission.RUNS_READ)
async def console_home(request: Request) -> Response:
    """Send a visitor to the runs."""
    root = request.scope.get("root_path", "")
    return RedirectResponse(f"{root}{BASE}/runs", status_code=307)


@router.get("/find")
@needs(Permission.RUNS_READ)
async def console_find(request: Request, q: Choice = "") -> Response:
    """Send a visitor to the run with an id."""
    root = request.scope.get("root_path", "") + BASE
    wanted = "".join(one for one in q.strip() if one.isalnum())
    return RedirectResponse(f"{root}/runs/{wanted}" if wanted else f"{root}/runs", status_code=303)


@router.get("/sign-in")
@public
async def console_sign_in(
    request: Request,
    sessions: SessionsDep,
    ticket: Annotated[str, Query(max_length=200)] = "",
    back: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Ask for a key; who comes with a ticket from `hocket console` has shown one."""
    answer: Response = render(request, None, "sign_in.html", {"section": "", "back": _own(back)})
    if ticket:
        root = request.scope.get("root_path", "") + BASE
        bearer = sessions.redeem(ticket)
        answer = RedirectResponse(f"{root}/runs", status_code=303)
        _begin_session(request, answer, sessions, bearer)
    return answer


@router.post("/sign-in")
@public
async def console_begin_session(request: Request, body: SignIn, sessions: SessionsDep) -> Response:
    """Begin a session for the bearer of a key."""
    answer = JSONResponse({"back": _own(body.back)})
    _begin_session(request, answer, sessions, await sessions.book.bearer(body.key.strip()))
    return answer


@router.post("/tickets")
@needs(Permission.RUNS_READ)
async def console_ticket(sessions: SessionsDep, caller: CallerDep) -> Response:
    """Return a ticket that begins a session for the bearer of this request's key, for a minute."""
    return JSONResponse({"ticket": sessions.ticket(caller.bearer)})


@router.post("/sign-out")
@public
async def console_end_session(request: Request) -> Response:
    """End the session of this browser. Rotating or revoking its key ends it everywhere."""
    answer = JSONResponse({"back": ""})
    answer.delete_cookie(COOKIE, path=request.scope.get("root_path", "") or "/")
    return answer


@router.get("/runs")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_runs(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    pipeline: Choice = "",
    status: Literal["", Status] = "",
    period: Period = "24h",
    since: Moment | None = None,
    until: Moment | None = None,
    missed: Switch = False,
    min_cost: Annotated[str, Query(max_length=20)] = "",
    after: After = None,
) -> Response:
    """List runs under a chart of how many were accepted when."""
    start, end = run_list.span_of(
        period, in_range(since) if since else None, in_range(until) if until else None
    )
    wanted = runs.RunFilter(
        pipeline=pipeline or None,
        status=status or None,
        since=start,
        until=end if until else None,
        missed=missed,
        min_cost_usd=_dollars(min_cost),
    )
    page = await runs.list_runs(context.pool, caller.tenant, wanted, after, ROWS)
    bars = await run_list.histogram(context.pool, caller.tenant, wanted, start, end)
    kept = {name: value for name, value in request.query_params.items() if name != "after"}
    return render(
        request,
        caller,
        "runs.html",
        {
            "section": "Runs",
            "page": page,
            "older": f"?{_query(kept, after=page.next)}" if page.next else None,
            "histogram": bars,
            "start": start,
            "end": end,
            "wanted": wanted,
            "min_cost": min_cost,
            "period": period,
            "custom": since is not None or until is not None,
            "filtered": bool(pipeline or status or missed or min_cost or since or until),
            "pipelines": await run_list.pipeline_names(context.pool, caller.tenant),
            "statuses": STATUSES,
            "ranges": tuple(run_list.RANGES),
        },
    )


@router.get("/runs/{run_id}")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_run(
    request: Request,
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    view: View = "timeline",
    after: After = None,
) -> Response:
    """Show a run: its time, its money, and one of its views."""
    run = shown(runs.detail(await runs.run_row(context.pool, caller.tenant, run_id)), caller)
    parts = run_page.path_parts(run.critical_path)
    took, allowed = run_page.took_ms(run), run_page.allowed_ms(run)
    values: dict[str, Any] = {
        "section": "Runs",
        "run": run,
        "cost": await runs.run_cost(context.pool, caller.tenant, run_id),
        "took": took,
        "allowed": allowed,
        "late": run.met_deadline is False or (run.finished_at is None and took > allowed),
        "path": parts,
        "total": sum(part.ms for part in parts),
        "critical": run_page.critical_steps(run.critical_path),
        "queue_ms": run_page.queue_ms,
        "view": view,
        "views": VIEWS,
    }
    if view == "steps":
        steps = await runs.list_steps(
            context.pool, run_id, after=after, limit=STEP_ROWS, values=False
        )
        older = f"?{_query({'view': view}, after=steps.next)}" if steps.next else None
        values |= {"steps": steps, "older": older}
    if view == "calls":
        values["calls"] = await calls.of_run(context.pool, caller.tenant, run_id, MAX_CALLS)
    return render(request, caller, "run.html", values)


@router.get("/runs/{run_id}/timeline.json")
@needs(Permission.RUNS_READ)
async def console_timeline(
    run_id: RunId,
    context: Ctx,
    caller: CallerDep,
    node: Annotated[str | None, Query(max_length=MAX_STEP_CHARS)] = None,
    after: Annotated[str, Query(max_length=MAX_STEP_CHARS)] = "",
) -> Response:
    """Return the nodes of a run, with the steps of a short one; or a page of one node's steps."""
    run = await runs.run_row(context.pool, caller.tenant, run_id)
    if node is None and not after:
        found = await timeline.overview(context.pool, run)
    else:
        found = await timeline.steps(context.pool, run, node, after)
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


@router.get("/runs/{run_id}/graph.json")
@needs(Permission.RUNS_READ, Permission.PIPELINES_READ)
async def console_run_graph(run_id: RunId, context: Ctx, caller: CallerDep) -> Response:
    """Return the graph of a run's pipeline with how far its nodes are."""
    run = await runs.run_row(context.pool, caller.tenant, run_id)
    _, plan = await context.plans.plan_of(
        context.pool, caller.tenant, run["pipeline"], run["version"]
    )
    found = graph_of(plan)
    found["nodes"] = await timeline.nodes(context.pool, run)
    return JSONResponse(found, headers={"Cache-Control": "no-store"})


@router.get("/runs/{run_id}/steps/{step:path}")
@needs(Permission.RUNS_READ)
async def console_step(
    request: Request, run_id: RunId, step: StepName, context: Ctx, caller: CallerDep
) -> Response:
    """Show a step with its values: a page, or the part of one for htmx."""
    run = shown(runs.detail(await runs.run_row(context.pool, caller.tenant, run_id)), caller)
    found = await runs.one_step(context.pool, run_id, step)
    if not caller.sees_content:
        found = found.model_copy(update={"input": None, "output": None})
    part = request.headers.get("hx-request") == "true"
    values = {
        "section": "Runs",
        "run": run,
        "step": found,
        "queue_ms": run_page.queue_ms,
    }
    return render(request, caller, "step_panel.html" if part else "step.html", values)


@router.get("/pipelines")
@needs(Permission.PIPELINES_READ, Permission.COSTS_READ)
async def console_pipelines(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    after: Annotated[str, Query(max_length=63, pattern=r"^[A-Za-z0-9_-]*$")] = "",
) -> Response:
    """List the pipelines with how their last days went."""
    found = await pipelines.list_pipelines(context.pool, caller.tenant, after, ROWS)
    older = f"?{_query({}, after=found[-1].pipeline)}" if len(found) == ROWS else None
    rows = await pipeline_list.with_last_days(context.pool, caller.tenant, found)
    values = {"section": "Pipelines", "rows": rows, "older": older}
    return render(request, caller, "pipelines.html", values)


@router.get("/pipelines/{name}")
@needs(Permission.PIPELINES_READ, Permission.COSTS_READ)
async def console_pipeline(
    request: Request,
    name: Token,
    context: Ctx,
    caller: CallerDep,
    version: VersionNumber | None = None,
) -> Response:
    """Show a version of a pipeline: its graph, what its nodes cost, its document."""
    found = await pipelines.version_of(context.pool, caller.tenant, name, version)
    nodes = await costs.by_node(context.pool, caller.tenant, name, found.version)
    values = {
        "section": "Pipelines",
        "pipeline": found,
        "costs": nodes.costs,
        "example": pipeline_list.example_of(found.spec.get("input")) or {},
    }
    return render(request, caller, "pipeline.html", values)


@router.get("/pipelines/{name}/graph.json")
@needs(Permission.PIPELINES_READ)
async def console_pipeline_graph(
    name: Token,
    context: Ctx,
    caller: CallerDep,
    version: VersionNumber | None = None,
) -> Response:
    """Return the graph of a version of a pipeline."""
    _, plan = await context.plans.plan_of(context.pool, caller.tenant, name, version)
    return JSONResponse(graph_of(plan), headers={"Cache-Control": "no-store"})


@router.get("/money")
@needs(Permission.COSTS_READ)
async def console_money(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    days: Annotated[int, Query(ge=1, le=366)] = 7,
) -> Response:
    """Show what the last days cost."""
    spent = await money.spending(context.pool, caller.tenant, days)
    values = {
        "section": "Money",
        "days": days,
        "total": spent.total,
        "calls": spent.calls,
        "waste": spent.waste,
        "tables": spent.tables,
    }
    return render(request, caller, "money.html", values)


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


def _begin_session(
    request: Request, answer: Response, sessions: Sessions, bearer: Principal
) -> None:
    answer.set_cookie(
        COOKIE,
        sessions.begin(bearer),
        max_age=SESSION_S,
        path=request.scope.get("root_path", "") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def _own(path: str) -> str:
    """Return a path of the console to go back to; what leads anywhere else is left out."""
    plain = path.startswith("/") and not path.startswith("//") and path.isprintable()
    return path if plain and "\\" not in path else ""


def _query(values: dict[str, str], *, after: str | None) -> str:
    return urlencode({**values, "after": after or ""})


def _dollars(text: str) -> Decimal | None:
    """Return an amount that somebody typed, or raise InvalidInput."""
    if not text.strip():
        return None
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount < MAX_DOLLARS:
        raise InvalidInput(
            field="min_cost", reason="it is no amount of dollars", cure="Write it like `0.05`."
        )
    return amount
