"""Live updates for open pages: changes of runs, and changed rows."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import Response

from hocket.admin.console.page_route import page_router
from hocket.admin.console.pages.runs import ROWS, filter_of
from hocket.admin.console.rendering import TENANT, render, root_of
from hocket.admin.console.views import run_list
from hocket.admin.context import Context, Ctx
from hocket.admin.live.endpoints import streamed
from hocket.admin.live.live_events import ListFilter
from hocket.admin.live.streams import QUIET, QUIET_S
from hocket.admin.requests.identity import Caller, CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads as runs
from hocket.schemas.access.roles import Permission
from hocket.schemas.errors import InvalidInput
from hocket.schemas.labels import read_labels
from hocket.schemas.rest import RunSummary

RUN_ID = re.compile(r"r[0-9a-f]{24}")
MAX_IDS_CHARS = 26 * ROWS


class AskedRows(run_list.Asked):
    """Which rows of a list have changed: `shown` ones are already on the page, `fresh` ones are added if
    they match its filters."""

    shown: str = ""
    fresh: str = ""


router = page_router()


@router.get("/live/runs")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_live_runs(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    wanted: Annotated[run_list.Asked, Query()],
) -> Response:
    """Follow a list: events `rows` with the lines of runs that have changed. All who have the same list
    open are sent the same, which is read and made once."""
    filter_of(wanted, caller)  # so that an invalid filter gets an error answer, not an event
    await context.live.until_attached()
    return await streamed(request, _lines(request, context, caller, wanted))


async def _lines(
    request: Request, context: Context, caller: Caller, wanted: run_list.Asked
) -> AsyncGenerator[bytes, None]:
    async def make(ids: Sequence[str], left_out: bool) -> bytes:
        every = runs.RunFilter(run_ids=tuple(ids))
        found = (await runs.list_runs(context.pool, caller.tenant, every, None, ROWS)).runs
        fits = {run.run_id for run in found}
        if wanted.narrowed:
            fitting = replace(filter_of(wanted, caller), run_ids=tuple(ids))
            page = await runs.list_runs(context.pool, caller.tenant, fitting, None, ROWS)
            fits = {run.run_id for run in page.runs}
        values = {"section": "Runs", "runs": found, "fits": fits}
        lines = bytes(render(request, caller, "run_lines.html", values).body).decode()
        told = json.dumps({"lines": lines, "left_out": left_out})
        return f"event: rows\ndata: {told}\n\n".encode()

    labels = read_labels(wanted.labels, "labels") if wanted.labels else {}
    heard = ListFilter(wanted.pipeline or None, None, labels)
    key = (root_of(request), request.query_params.get(TENANT), wanted.model_dump_json())
    with context.live.place_of(caller.tenant):
        async with context.lists.following(
            context.live, caller.tenant, key, heard, make
        ) as follower:
            yield QUIET
            while not follower.has_ended:
                yield await follower.next(QUIET_S) or QUIET


@router.get("/live/rows")
@needs(Permission.RUNS_READ, Permission.COSTS_READ)
async def console_live_rows(
    request: Request, context: Ctx, caller: CallerDep, wanted: Annotated[AskedRows, Query()]
) -> Response:
    """Return rows of the list as they are now."""
    found: list[RunSummary] = []
    if shown := _ids(wanted.shown, "shown"):
        every = runs.RunFilter(run_ids=shown)
        found += (await runs.list_runs(context.pool, caller.tenant, every, None, ROWS)).runs
    if fresh := _ids(wanted.fresh, "fresh"):
        fitting = replace(filter_of(wanted, caller), run_ids=fresh)
        found += (await runs.list_runs(context.pool, caller.tenant, fitting, None, ROWS)).runs
    return render(
        request, caller, "run_lines.html", {"section": "Runs", "runs": found, "fits": None}
    )


def _ids(text: str, field: str) -> tuple[str, ...]:
    """Parse a list of run ids, or raise InvalidInput."""
    found = tuple(part for part in text.split(",") if part)
    if len(text) > MAX_IDS_CHARS or not all(map(RUN_ID.fullmatch, found)):
        raise InvalidInput(
            field=field, reason=f"it is not a list of up to {ROWS} ids of runs", cure="Send fewer."
        )
    return found
