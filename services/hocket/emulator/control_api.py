"""The routes under `/emulator`, through which tests and people control an engine
and see what it did."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from hocket.emulator.core import requests
from hocket.emulator.core.faults import Fault, FaultRates
from hocket.emulator.core.warmth import State
from hocket.emulator.engine_parts import EngineParts
from hocket.schemas.checks.first_fault import first_fault

T = TypeVar("T")
_SCRIPT = TypeAdapter(list[Fault])


class ControlApi:
    """Faults, warmth and the journal of one engine."""

    def __init__(self, parts: EngineParts) -> None:
        self._profile = parts.profile
        self._serving = parts.serving
        self._faults = parts.faults
        self._journal = parts.journal

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/emulator", self._state),
            web.get("/emulator/journal", self._read_journal),
            web.put("/emulator/faults", self._set_faults),
            web.post("/emulator/script", self._add_script),
            web.delete("/emulator/script", self._clear_script),
            web.post("/emulator/provision", self._provision),
            web.post("/emulator/load", self._load),
            web.post("/emulator/unload", self._unload),
            web.post("/emulator/forget", self._directed(self._serving.forget_prefixes)),
        ]

    async def _state(self, _request: web.Request) -> web.Response:
        serving = self._serving
        serving.warmth.advance(serving.clock.now_ms())
        return web.json_response(
            {
                "profile": self._profile.model_dump(),
                "speed": serving.clock.speed,
                "virtual_ms": serving.clock.now_ms(),
                "state": serving.warmth.state.value,
                "held_s": serving.warmth.held_ms / 1000,
                "ready_s": serving.warmth.ready_ms / 1000,
                "running": serving.running,
                "waiting": serving.waiting,
                "faults": self._faults.rates.model_dump(),
                "scripted": self._faults.scripted,
                "requests": self._journal.requests,
            }
        )

    async def _read_journal(self, _request: web.Request) -> web.Response:
        return web.json_response({"requests": self._journal.entries()})

    async def _set_faults(self, request: web.Request) -> web.Response:
        self._faults.rates = _read(FaultRates.model_validate_json, await request.read())
        return await self._state(request)

    async def _add_script(self, request: web.Request) -> web.Response:
        self._faults.add(_read(_SCRIPT.validate_json, await request.read()))
        return await self._state(request)

    async def _clear_script(self, request: web.Request) -> web.Response:
        self._faults.clear()
        return await self._state(request)

    async def _provision(self, request: web.Request) -> web.Response:
        self._serving.provision()
        if "wait" in request.query:
            await self._serving.until(State.PROVISIONED)
        return await self._state(request)

    async def _load(self, request: web.Request) -> web.Response:
        self._serving.load()
        if "wait" in request.query:
            await self._serving.until(State.READY)
        return await self._state(request)

    async def _unload(self, request: web.Request) -> web.Response:
        self._serving.unload(keep="keep" in request.query)
        return await self._state(request)

    def _directed(
        self, direct: Callable[[], None]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            direct()
            return await self._state(request)

        return handle


def _read(read: Callable[[bytes], T], content: bytes) -> T:
    """Return the result of validating a body, or raise RequestInvalid."""
    try:
        return read(content)
    except ValidationError as error:
        fault = first_fault(error)
        raise requests.RequestInvalid(field=fault.field("body"), reason=fault.reason) from error
