"""The page with the list of runs."""

import re
from contextlib import nullcontext
from decimal import Decimal
from typing import Annotated, get_args

from fastapi import Query, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.pages import sign_in
from hocket.admin.console.rendering import address, href, is_part, render
from hocket.admin.console.views import histogram, run_list, tenant_list
from hocket.admin.context import Ctx
from hocket.admin.pages import After, in_range
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.admin.runs.parameters import Status
from hocket.schemas.access.roles import Permission
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput, RunUnknown
from hocket.schemas.ids import is_run_id
from hocket.schemas.labels import read_labels

ROWS = 50
"""Rows of a list on one page."""
DOLLARS = re.compile(r"\$?([0-9]{1,12}(\.[0-9]{1,12})?|\.[0-9]{1,12})")
"""The form of `min_cost_usd` in the API, also with `$` or without a zero before the point."""
STATUSES = get_args(Status)
Choice = Annotated[str, Query(max_length=64)]

router = page_router()


@router.get("")
@needs(Permission.RUNS_READ)
async def console_home(request: Request) -> Response:
    """Send a visitor to the runs."""
    return RedirectResponse(href(request, "/runs"), status_code=307)


@router.get("/find")
@needs(Permission.RUNS_READ)
async def console_find(request: Request, q: Choice = "") -> Response:
    """Send a visitor to the run with an id; raise RunUnknown if no run can have it."""
    wanted = "".join(one for one in q if one.isalnum())
    if q.strip() and not is_run_id(wanted):
        raise RunUnknown(run_id=shown_text(q.strip()))
    path = f"/runs/{wanted}" if wanted else "/runs"
    return RedirectResponse(href(request, path), status_code=303)


@router.get("/tenants")
@needs(Permission.RUNS_READ)
async def console_tenants(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    back: Annotated[str, Query(max_length=200)] = "/runs",
) -> Response:
    """List the tenants that the caller may look at; each leads to a page of the console."""
    if caller.bearer.tenant is None:
        names = await tenant_list.tenant_names(context.pool)
    else:
        names = [caller.tenant]
    values = {"section": "", "tenants": names, "back": sign_in.own_path(back) or "/runs"}
    part = is_part(request)
    return render(request, caller, "tenant_names.html" if part else "tenants.html", values)


@router.get("/runs")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_runs(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    wanted: Annotated[run_list.Asked, Query()],
    after: After = None,
) -> Response:
    """List runs; a chart of how many were accepted when is drawn above once it is counted."""
    found = filter_of(wanted, caller)
    async with context.long_reads.place(caller.tenant) if found.is_search else nullcontext():
        found = await runs.within_reach(context.pool, caller.tenant, found, after)
        page = await runs.list_runs(context.pool, caller.tenant, found, after, ROWS)
    start, end = run_list.span_of(wanted.period, found.since, found.until)
    values = {
        "section": "Runs",
        "page": page,
        "older": address(request, after=page.next) if page.next else None,
        "start": start,
        "count_sql": histogram.count_sql(caller.tenant, found, start),
        "end": end,
        "wanted": wanted,
        "custom": wanted.since is not None or wanted.until is not None,
        "back_to": found.back_to,
        "live": after is None and wanted.until is None and not wanted.contains,
        "pipelines": await run_list.pipeline_names(context.pool, caller.tenant),
        "bulk_filter": run_list.bulk_filter(found),
        "filter_text": run_list.filter_text,
        "statuses": STATUSES,
        "periods": tuple(run_list.Period),
    }
    return render(request, caller, "runs.html", values)


@router.get("/runs/histogram.json")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_runs_histogram(
    context: Ctx,
    caller: CallerDep,
    wanted: Annotated[run_list.Asked, Query()],
    after: After = None,
) -> Response:
    """Return how many runs of the list were accepted when; the list does not wait for the count."""
    found = filter_of(wanted, caller)
    start, end = run_list.span_of(wanted.period, found.since, found.until)
    async with context.long_reads.place(caller.tenant):
        bars = await histogram.histogram(context.pool, caller.tenant, found, start, end, after)
    return JSONResponse(bars.as_json(), headers={"Cache-Control": "no-store"})


def filter_of(wanted: run_list.Asked, caller: Caller) -> runs.RunFilter:
    """Return the filter of a form, or raise InvalidInput. Callers who may not see content may not search
    it either."""
    if wanted.contains:
        caller.bearer.check(Permission.CONTENT_READ)
    since = in_range(wanted.since) if wanted.since else None
    until = in_range(wanted.until) if wanted.until else None
    return runs.RunFilter(
        pipeline=wanted.pipeline or None,
        version=wanted.version or None,
        status=wanted.status or None,
        since=run_list.span_of(wanted.period, since, until)[0],
        until=until,
        labels=read_labels(wanted.labels, "labels") if wanted.labels else {},
        missed=wanted.missed,
        min_cost_usd=_dollars(wanted.min_cost),
        error_code=wanted.error or None,
        contains=wanted.contains or None,
    )


def _dollars(text: str) -> Decimal | None:
    """Parse an amount typed by a user, or raise InvalidInput."""
    if not text.strip():
        return None
    if DOLLARS.fullmatch(text.strip()) is None:
        raise InvalidInput(
            field="min_cost", reason="it is not an amount of dollars", cure="Write it like `0.05`."
        )
    return Decimal(text.strip().removeprefix("$"))
