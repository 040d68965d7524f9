"""`/v1/runs/events` and `/v1/runs/{run_id}/events`: follow runs as server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Send

from hocket.admin.context import Ctx
from hocket.admin.live import streams
from hocket.admin.live.live_events import ListFilter
from hocket.admin.requests.identity import CallerDep
from hocket.admin.requests.permissions import needs
from hocket.admin.requests.request_limit import stop_counting
from hocket.admin.runs.lookup import RunId, found_run
from hocket.admin.runs.parameters import LabelsText, Status, labels_of
from hocket.kit.request_turns import give_way
from hocket.schemas.access.roles import Permission
from hocket.schemas.rest import Token

EVENT_ID = r"^[0-9]{1,18}(\.[0-9]{1,9})?$"
LastEventId = Annotated[
    str | None,
    Header(
        pattern=EVENT_ID,
        description="`id` of the last event received; the stream resumes after it.",
    ),
]
EVENT_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream of events.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

router = APIRouter(prefix="/v1/runs", tags=["runs"])


@router.get("/events", response_class=StreamingResponse, responses=EVENT_STREAM)
@needs(Permission.RUNS_READ)
async def follow_runs(
    request: Request,
    context: Ctx,
    caller: CallerDep,
    pipeline: Annotated[Token | None, Query()] = None,
    status: Annotated[Status | None, Query()] = None,
    labels: LabelsText = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Follow the tenant's runs as server-sent events: a `run` event for each run that is accepted or
    ends after the response begins. To show a list, open the stream first, then load the list."""
    await context.live.until_attached()
    wanted = ListFilter(pipeline, status, labels_of(labels))
    since = None if last_event_id is None else streams.parse_event_id(last_event_id)
    return await streamed(request, streams.follow_list(context, caller, wanted, since))


@router.get("/{run_id}/events", response_class=StreamingResponse, responses=EVENT_STREAM)
@needs(Permission.RUNS_READ)
async def follow_run(
    run_id: RunId,
    request: Request,
    context: Ctx,
    caller: CallerDep,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Follow a run as server-sent events: a `step` event for the current state of each step and for
    every change, and a `run` event when the run ends."""
    run = await found_run(context, caller.tenant, run_id, values=False)
    await context.live.until_attached()
    since = None if last_event_id is None else streams.parse_event_id(last_event_id)
    return await streamed(request, streams.follow_run(context, caller, run, since))


class EventStream(StreamingResponse):
    """A stream of events that ends when its client disconnects."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._events = events

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._events):
            await super().stream_response(send)


async def streamed(request: Request, stream: AsyncGenerator[bytes, None]) -> EventStream:
    """Return a stream whose first part has been produced, so that a refusal becomes an ordinary error
    answer."""
    give_way()
    first = await anext(stream)
    stop_counting(request.scope)

    async def whole() -> AsyncGenerator[bytes, None]:
        async with aclosing(stream):
            yield first
            async for part in stream:
                yield part

    return EventStream(whole())
