"""Change events as coordinators publish them, and clients that follow them as server-sent events."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import RunFinished
from hocket.schemas.run_changes import KIND
from hocket.schemas.structs.run_changes import RunChange, RunsChanged, StepState, write

AT_MS = 1_777_896_000_000.0


def run_id(number: int) -> str:
    return f"r{number:024x}"


def change(number: int, log_seq: int, **fields: Any) -> RunChange:
    """Return a change of a run; `steps` are (name, state, attempt)."""
    steps = [
        StepState(name, name, "python", "step", state, attempt, AT_MS, started_at_ms=AT_MS)
        for name, state, attempt in fields.pop("steps", ())
    ]
    given = {"version": 1, "status": "running", "priority": "standard", **fields}
    return RunChange(
        run_id(number),
        0,
        log_seq,
        accepted_at_ms=AT_MS,
        deadline_at_ms=AT_MS + 5_000,
        steps=steps,
        **given,
    )


async def tell(
    bus: Bus, *changes: RunChange, tenant: str = "default", pipeline: str = "greet"
) -> int:
    """Publish changes of runs; return the message's sequence number."""
    body = write(RunsChanged(tenant, pipeline, list(changes)))
    return (await bus.publish(subjects.event(tenant, pipeline, KIND), body)).seq


async def tell_end(
    bus: Bus, number: int, *, tenant: str = "default", pipeline: str = "greet", **fields: Any
) -> int:
    """Publish a run's end; return the message's sequence number."""
    ended = RunFinished(
        run_id=run_id(number),
        tenant=tenant,
        pipeline=pipeline,
        version=1,
        status=fields.pop("status", "succeeded"),
        accepted_at_ms=AT_MS,
        finished_at_ms=AT_MS + 1_000,
        deadline_at_ms=AT_MS + 5_000,
        **fields,
    )
    subject = subjects.event(tenant, pipeline, RunFinished.kind)
    return (await bus.publish(subject, ended.model_dump_json().encode())).seq


class Heard:
    """A client of a stream. `place` is the last `id` that it received."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.place = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return the next event's name and data; raise StopAsyncIteration at the end."""
        name, data, placed = "", "", False
        while raw := await self.answer.content.readline():
            key, _, value = raw.decode().rstrip("\n").partition(": ")
            if key == "id":
                self.place, placed = value, True
            elif key == "event":
                name = value
            elif key == "data":
                data = value
            elif not key and data:
                return name, json.loads(data)
            elif not key and placed:
                return "place", {}
        raise StopAsyncIteration

    async def rest(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all events until the stream ends."""
        events = []
        while True:
            try:
                events.append(await self.next())
            except StopAsyncIteration:
                return events


@asynccontextmanager
async def following(
    session: aiohttp.ClientSession, url: str, since: str | None = None, **headers: str
) -> AsyncIterator[Heard]:
    """Follow a stream while the block lasts."""
    if since is not None:
        headers["Last-Event-ID"] = since
    async with session.get(url, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        yield Heard(answer)
