"""Calls with a configuration whose backends are scripted by the test, with a stopped clock."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hocket.gateway.backends.protocol import BackendBroken, Chunk, Chunks
from hocket.gateway.calls.cancellation import Cancellation
from hocket.gateway.calls.lifecycle import Calls
from hocket.gateway.config.backend_pool import ServedBackend
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.config.configuration import parse
from hocket.gateway.experiments.experiments import Experiments
from hocket.schemas.messages import (
    Attribution,
    CallOpened,
    CallRefused,
    CallReply,
    CallRequest,
    ChatMessage,
    Completion,
)
from hocket.schemas.structs.usage import RecordedUsage

NOW_MS = 1_800_000_000_000.0
BOUND_S = 20.0

Behaviour = Callable[[CallRequest, Chunks | None], Awaitable[Completion]]


class Scripted:
    """A backend with a scripted behaviour; it records its calls and counts those that were cancelled."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.called = asyncio.Event()
        self.requests: list[CallRequest] = []
        self.stopped = 0

    async def call(
        self, request: CallRequest, *, timeout_ms: float, chunks: Chunks | None = None
    ) -> Completion:
        self.requests.append(request)
        self.called.set()
        try:
            return await self.behaviour(request, chunks)
        except asyncio.CancelledError:
            self.stopped += 1
            raise

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def says(text: str, **fields: Any) -> Scripted:
    """Return a backend that answers at once, in one piece if a stream is wanted."""

    async def behaviour(_: CallRequest, chunks: Chunks | None) -> Completion:
        if chunks is not None:
            await chunks(Chunk(text, output_tokens=1))
        return Completion(text=text, input_tokens=1_000, output_tokens=1_000, **fields)

    return Scripted(behaviour)


def hangs() -> Scripted:
    """Return a backend that never answers."""

    async def behaviour(_: CallRequest, __: Chunks | None) -> Completion:
        await asyncio.Event().wait()
        raise AssertionError

    return Scripted(behaviour)


def breaks() -> Scripted:
    """Return a backend that fails with its own error."""

    async def behaviour(_: CallRequest, __: Chunks | None) -> Completion:
        raise BackendBroken(component="it", status=503, reason="no luck")

    return Scripted(behaviour)


class Said:
    """An announcement."""

    def __init__(self, first: bool) -> None:
        self._first = first

    async def first(self) -> bool:
        return self._first


class Rig:
    """Calls with a `models:` section; `backends` has the backend of each name."""

    def __init__(self, models: dict[str, Any], **backends: Scripted) -> None:
        self.now_ms = NOW_MS
        self.records: list[RecordedUsage] = []
        self.opened: list[str] = []
        self.refused: list[CallRefused] = []
        self.backends = backends
        self.table = self.routes(models)
        self.calls = self.calls_with(None)

    def calls_with(self, experiments: Experiments | None) -> Calls:
        return Calls(self.table, now_ms=lambda: self.now_ms, books=self, experiments=experiments)

    def routes(self, models: dict[str, Any]) -> Routes:
        table = parse(models, {})
        served = {
            spec.key: ServedBackend(spec, self.backends[spec.name])
            for spec in table.backends()
            if spec.name in self.backends
        }
        return Routes(table, served)

    async def make(self, call_id: str = "c", **fields: Any) -> CallReply:
        chunks = fields.pop("chunks", None)
        cancellation = fields.pop("cancellation", None) or Cancellation()
        making = self.calls.make(request(call_id, **fields), cancellation, chunks)
        return await asyncio.wait_for(making, BOUND_S)

    async def open(self, opened: CallOpened) -> "Said":
        first = opened.call_id not in self.opened
        self.opened.append(opened.call_id)
        return Said(first)

    async def book(self, record: RecordedUsage) -> None:
        self.records.append(record)

    def refuse(self, refused: CallRefused) -> None:
        self.refused.append(refused)

    def booked(self) -> list[tuple[str, str, str, str]]:
        return [(one.call_id, one.backend, one.status, one.kind) for one in self.records]


def request(call_id: str = "c", **fields: Any) -> CallRequest:
    return CallRequest.model_validate(
        {
            "call_id": call_id,
            "model": "writer",
            "messages": (ChatMessage(role="user", content="How often?"),),
            "deadline_at_ms": NOW_MS + 60_000,
            "attribution": Attribution(run_id="r1", pipeline="report", node="draft"),
            **fields,
        }
    )


def backend(name: str, **fields: Any) -> dict[str, Any]:
    """Return the configuration of a backend; its address is never used."""
    prices = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "1"}
    return {
        "name": name,
        "base_url": "http://x",
        "model": "m",
        "prices": prices,
        "stops_on_disconnect": True,
        **fields,
    }
