"""`/v1/runs/export`: all runs that match a filter, as JSON lines or CSV, page by page.

An answer may be of any length, but only one page of it is in memory. A page is read when the client has
consumed the previous one, and a tenant reads one page at a time. If a page cannot be read, the
connection is cut, so that nobody mistakes a part for the whole.
"""

import csv
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import Field
from starlette.types import Send

from hocket.admin.context import Context, Ctx
from hocket.admin.pages import After
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.parameters import WHOLE
from hocket.admin.requests.permissions import needs
from hocket.admin.runs import reads
from hocket.admin.runs.parameters import WantedRuns
from hocket.admin.runs.reads import RunFilter
from hocket.kit.request_turns import give_way
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import MAX_PAGE, RunSummary

MAX_EXPORT = 1_000_000
"""The maximum number of runs in one answer."""
MEDIA_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
COLUMNS = tuple(field.alias or name for name, field in RunSummary.model_fields.items())
EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A run a line.",
        "content": {kind: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()},
    }
}

router = APIRouter(prefix="/v1/runs", tags=["runs"])


class Export(StreamingResponse):
    """A stream of rows that stops reading when its client disconnects."""

    def __init__(self, rows: AsyncGenerator[bytes, None], kind: str) -> None:
        media_type = f"{MEDIA_TYPES[kind]}; charset=utf-8"
        name = f'attachment; filename="runs.{kind}"'
        headers = {"Cache-Control": "no-store", "Content-Disposition": name}
        super().__init__(rows, media_type=media_type, headers=headers)
        self._rows = rows

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._rows):
            await super().stream_response(send)


@router.get("/export", response_class=StreamingResponse, responses=EXPORT)
@needs(Permission.RUNS_READ)
async def export_runs(
    context: Ctx,
    caller: CallerDep,
    wanted: WantedRuns,
    as_: Annotated[
        Literal["jsonl", "csv"], Query(alias="format", description="JSON lines, or CSV.")
    ] = "jsonl",
    after: After = None,
    limit: Annotated[
        Annotated[int, Field(ge=1, le=MAX_EXPORT), WHOLE],
        Query(description="Maximum number of runs."),
    ] = MAX_EXPORT,
) -> StreamingResponse:
    """Export runs with the fields of a list, newest first, one per line; for more than a million, export
    by time range. If the export fails part-way, the connection is closed, so that a partial export
    cannot be mistaken for a complete one."""
    pages = _pages(context, caller.tenant, wanted, after, limit)
    give_way()
    first = await anext(pages)  # so that a refusal is an ordinary answer
    return Export(_written(first, pages, as_), as_)


async def _pages(
    context: Context, tenant: str, wanted: RunFilter, after: str | None, left: int
) -> AsyncGenerator[Sequence[RunSummary], None]:
    """Yield the runs page by page; at least one page."""
    while True:
        async with context.exports.place(tenant):
            near = await reads.within_reach(context.pool, tenant, wanted, after)
            number = min(left, MAX_PAGE)
            page = await reads.list_runs(context.pool, tenant, near, after, number)
        yield page.runs
        left -= len(page.runs)
        after = page.next
        if after is None or left <= 0:
            return


async def _written(
    first: Sequence[RunSummary], more: AsyncGenerator[Sequence[RunSummary], None], kind: str
) -> AsyncGenerator[bytes, None]:
    if kind == "csv":
        yield _csv([COLUMNS])
    async with aclosing(more):
        async for page in _after(first, more):
            if page:
                yield _rows(page) if kind == "csv" else _lines(page)


async def _after(
    first: Sequence[RunSummary], more: AsyncIterator[Sequence[RunSummary]]
) -> AsyncIterator[Sequence[RunSummary]]:
    yield first
    async for page in more:
        yield page


def _lines(page: Sequence[RunSummary]) -> bytes:
    return b"".join(run.model_dump_json(by_alias=True).encode() + b"\n" for run in page)


def _rows(page: Sequence[RunSummary]) -> bytes:
    return _csv([_cells(run) for run in page])


def _cells(run: RunSummary) -> list[Any]:
    told = run.model_dump(mode="json", by_alias=True)
    return [_cell(told[name]) for name in COLUMNS]


def _cell(value: Any) -> Any:
    """Return a value for CSV: labels as JSON, booleans as in JSON, empty for null."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | dict) else value


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
