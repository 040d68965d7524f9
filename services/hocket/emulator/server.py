"""One emulated engine over HTTP: OpenAI's API, Anthropic's Messages API, vLLM's health and metrics, and
`/emulator` to direct it.

A caller that goes away cancels its request. Every request, whatever became of it, stands in the journal
with what was metered, so that a ledger can be compared with it.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog
from aiohttp import web
from prometheus_client import generate_latest
from pydantic import TypeAdapter, ValidationError

from hocket.emulator.core import anthropic, requests
from hocket.emulator.core.answers import Answer, Speech, embeddings
from hocket.emulator.core.anthropic import MessageAnswer
from hocket.emulator.core.faults import Fault, FaultRates, Faults
from hocket.emulator.core.profile import EngineProfile
from hocket.emulator.core.requests import Generation
from hocket.emulator.core.tokens import CHARS_PER_TOKEN
from hocket.emulator.core.warmth import State
from hocket.emulator.failures import MESSAGES, Injected, errors
from hocket.emulator.metrics import EngineMetrics
from hocket.emulator.serving import EngineUnloaded, RunningJob, Serving, VirtualClock

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_JOURNAL = 10_000
STOP_TIMEOUT_S = 1.0
T = TypeVar("T")
_SCRIPT = TypeAdapter(list[Fault])

log = structlog.get_logger()


class EmulatedEngine:
    """One engine and its HTTP application; build it inside a running event loop."""

    def __init__(
        self,
        profile: EngineProfile,
        *,
        speed: float = 1.0,
        seed: int = 0,
        rates: FaultRates | None = None,
        name: str = "0",
    ) -> None:
        self.profile = profile
        self.serving = Serving(profile, VirtualClock(speed))
        self.faults = Faults(rates or FaultRates(), seed=seed)
        self.metrics = EngineMetrics(self.serving, name)
        self._name = name
        self._requests = 0
        self._journal: deque[dict[str, Any]] = deque(maxlen=MAX_JOURNAL)
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen, and return the URL; port 0 is any free one."""
        runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=STOP_TIMEOUT_S,
        )
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        self._runner = runner
        bound_host, bound_port = runner.addresses[0][:2]
        return f"http://{bound_host}:{bound_port}"

    async def stop(self) -> None:
        """Take no more requests, and drop those that run."""
        self.serving.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors])
        application.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.post("/v1/embeddings", self._embeddings),
                web.post(MESSAGES, self._messages),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/metrics", self._metrics),
                web.get("/emulator", self._state),
                web.get("/emulator/journal", self._read_journal),
                web.put("/emulator/faults", self._set_faults),
                web.post("/emulator/script", self._add_script),
                web.delete("/emulator/script", self._clear_script),
                web.post("/emulator/provision", self._provision),
                web.post("/emulator/load", self._load),
                web.post("/emulator/unload", self._unload),
                web.post("/emulator/forget", self._directed(self.serving.forget_prefixes)),
            ]
        )
        return application

    # ---- OpenAI's API -------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _object(request)
        return await self._generated(request, requests.chat(body, self.profile), _chat_answer)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await _object(request)
        made = requests.completion(body, self.profile)
        return await self._generated(request, made, _completion_answer)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        if "anthropic-version" not in request.headers:
            raise requests.RequestInvalid(field="anthropic-version", reason="header is required")
        made = anthropic.messages(await _object(request), self.profile)
        return await self._generated(request, made, MessageAnswer)

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        made = requests.embedding(await _object(request), self.profile)
        entry = self._entry(request)
        fault = await self._met(entry)
        async with self._metered(entry, Generation(made.prompt_tokens, (), "", 0, "stop")) as job:
            await job.finished()
        if fault.kind == "disconnect":
            return self._broken(request, entry)
        entry["status"] = "ok"
        return web.json_response(embeddings(made, self.profile.model))

    async def _generated(
        self, request: web.Request, made: Generation, form: Callable[[str, str], Speech]
    ) -> web.StreamResponse:
        entry = self._entry(request)
        fault = await self._met(entry)
        answer = form(entry["request_id"], self.profile.model)
        async with self._metered(entry, made) as job:
            if made.stream:
                return await self._streamed(request, entry, made, answer, job, fault)
            await job.finished()
        if fault.kind == "disconnect":
            return self._broken(request, entry)
        entry["status"] = "ok"
        return web.json_response(answer.whole(made, job.cached_tokens))

    @asynccontextmanager
    async def _metered(self, entry: dict[str, Any], made: Generation) -> AsyncIterator[RunningJob]:
        """Run a job, and write down what it used, however it ends."""
        job: RunningJob | None = None
        try:
            async with self.serving.job(made.prompt_tokens, made.output_tokens, made.chain) as job:
                yield job
        finally:
            if job is not None:
                self._note(entry, job, made.finish_reason)

    async def _streamed(
        self,
        request: web.Request,
        entry: dict[str, Any],
        made: Generation,
        answer: Speech,
        job: RunningJob,
        fault: Fault,
    ) -> web.StreamResponse:
        """Send tokens as they are made; those that came at once go out as one chunk."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        sent = 0
        while sent < made.output_tokens:
            try:
                await self.serving.next_token(job)
            except EngineUnloaded:
                if not response.prepared:
                    raise
                self._broken(request, entry)
                return response
            if not response.prepared:
                await response.prepare(request)
                for chunk in answer.first(made, job.cached_tokens):
                    await response.write(answer.event(chunk))
            until = job.emitted
            if fault.kind == "disconnect":
                until = min(until, max(fault.after_tokens, sent))
            text = made.text[sent * CHARS_PER_TOKEN : until * CHARS_PER_TOKEN]
            if text:
                await response.write(answer.event(answer.next(made, text)))
            sent = until
            if fault.kind == "disconnect" and sent >= fault.after_tokens:
                self._broken(request, entry)
                return response
        for chunk in answer.last(made, job.cached_tokens):
            await response.write(answer.event(chunk))
        await response.write(answer.end)
        entry["status"] = "ok"
        return response

    async def _models(self, _request: web.Request) -> web.Response:
        model = {
            "id": self.profile.model,
            "object": "model",
            "created": 0,
            "owned_by": "hocket-emulator",
            "max_model_len": self.profile.max_model_tokens,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, _request: web.Request) -> web.Response:
        self.serving.warmth.advance(self.serving.clock.now_ms())
        return web.Response(status=200 if self.serving.warmth.ready else 503)

    async def _metrics(self, _request: web.Request) -> web.Response:
        body = generate_latest(self.metrics.registry)
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    # ---- faults and the journal ---------------------------------------------------------------

    async def _met(self, entry: dict[str, Any]) -> Fault:
        """Let the fault of a request happen, if it happens before the engine is asked."""
        fault = self.faults.deal()
        if fault.kind == "status":
            entry["status"] = str(fault.status)
            raise Injected(fault)
        if fault.kind == "hang":
            entry["status"] = "hung"
            await asyncio.Event().wait()
        if fault.kind == "delay":
            await asyncio.sleep(self.serving.clock.real_s(fault.delay_s * 1000))
        return fault

    def _broken(self, request: web.Request, entry: dict[str, Any]) -> web.StreamResponse:
        entry["status"] = "disconnected"
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _entry(self, request: web.Request) -> dict[str, Any]:
        """Open a request's entry in the journal."""
        self._requests += 1
        entry: dict[str, Any] = {
            "request_id": request.headers.get("X-Request-Id")
            or f"emu-{self._name}-{self._requests}",
            "path": request.path,
            "status": "cancelled",
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "cached_tokens": 0,
        }
        self._journal.append(entry)
        return entry

    def _note(self, entry: dict[str, Any], job: RunningJob, reason: str) -> None:
        entry["completion_tokens"] = job.emitted
        if job.prefilled_ms is not None:
            entry["prompt_tokens"] = job.job.prompt_tokens
            entry["cached_tokens"] = job.cached_tokens
        if job.finished_ms is None:
            self.metrics.aborted(job)
        else:
            self.metrics.finished(job, reason)

    # ---- /emulator ----------------------------------------------------------------------------

    async def _state(self, _request: web.Request) -> web.Response:
        serving = self.serving
        serving.warmth.advance(serving.clock.now_ms())
        return web.json_response(
            {
                "profile": self.profile.model_dump(),
                "speed": serving.clock.speed,
                "virtual_ms": serving.clock.now_ms(),
                "state": serving.warmth.state.value,
                "held_s": serving.warmth.held_ms / 1000,
                "ready_s": serving.warmth.ready_ms / 1000,
                "running": serving.running,
                "waiting": serving.waiting,
                "faults": self.faults.rates.model_dump(),
                "scripted": self.faults.scripted,
                "requests": self._requests,
            }
        )

    async def _read_journal(self, _request: web.Request) -> web.Response:
        return web.json_response({"requests": list(self._journal)})

    async def _set_faults(self, request: web.Request) -> web.Response:
        self.faults.rates = _read(FaultRates.model_validate_json, await request.read())
        return await self._state(request)

    async def _add_script(self, request: web.Request) -> web.Response:
        self.faults.add(_read(_SCRIPT.validate_json, await request.read()))
        return await self._state(request)

    async def _clear_script(self, request: web.Request) -> web.Response:
        self.faults.clear()
        return await self._state(request)

    async def _provision(self, request: web.Request) -> web.Response:
        self.serving.provision()
        if "wait" in request.query:
            await self.serving.until(State.PROVISIONED)
        return await self._state(request)

    async def _load(self, request: web.Request) -> web.Response:
        self.serving.load()
        if "wait" in request.query:
            await self.serving.until(State.READY)
        return await self._state(request)

    async def _unload(self, request: web.Request) -> web.Response:
        self.serving.unload(keep="keep" in request.query)
        return await self._state(request)

    def _directed(
        self, direct: Callable[[], None]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            direct()
            return await self._state(request)

        return handle


def _chat_answer(request_id: str, model: str) -> Speech:
    return Answer(request_id, model, int(time.time()), chat=True)


def _completion_answer(request_id: str, model: str) -> Speech:
    return Answer(request_id, model, int(time.time()), chat=False)


async def _object(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except ValueError as error:
        raise requests.RequestInvalid(field="body", reason=f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise requests.RequestInvalid(field="body", reason="not a JSON object")
    return body


def _read(read: Callable[[bytes], T], content: bytes) -> T:
    """Return what a validator makes of a body, or raise RequestInvalid."""
    try:
        return read(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise requests.RequestInvalid(field=field, reason=first["msg"]) from error
