"""The routes for calling a model: OpenAI's API and Anthropic's Messages API.

A caller that disconnects cancels its request.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from hocket.emulator.core import anthropic, requests
from hocket.emulator.core.answers import Answer, Speech, embeddings
from hocket.emulator.core.anthropic import MessageAnswer
from hocket.emulator.core.faults import Fault
from hocket.emulator.core.requests import Generation
from hocket.emulator.core.tokens import CHARS_PER_TOKEN
from hocket.emulator.engine_parts import EngineParts
from hocket.emulator.failures import MESSAGES, Injected
from hocket.emulator.serving import EngineUnloaded, RunningJob

ESCAPED_SURROGATE = re.compile(rb"\\u[dD]")
"""Of bodies in UTF-8, only such a one may contain half of a surrogate pair; the others are not searched
for one."""


class ModelApi:
    """The routes for calling a model."""

    def __init__(self, parts: EngineParts) -> None:
        self._profile = parts.profile
        self._serving = parts.serving
        self._faults = parts.faults
        self._journal = parts.journal

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/chat/completions", self._chat),
            web.post("/v1/completions", self._completion),
            web.post("/v1/embeddings", self._embeddings),
            web.post(MESSAGES, self._messages),
            web.get("/v1/models", self._models),
        ]

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await _object(request)
        return await self._generated(request, requests.chat(body, self._profile), _chat_answer)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = await _object(request)
        made = requests.completion(body, self._profile)
        return await self._generated(request, made, _completion_answer)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        if "anthropic-version" not in request.headers:
            raise requests.RequestInvalid(field="anthropic-version", reason="header is required")
        made = anthropic.messages(await _object(request), self._profile)
        return await self._generated(request, made, MessageAnswer)

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        made = requests.embedding(await _object(request), self._profile)
        entry = self._journal.open(request)
        fault = await self._met(entry)
        async with self._metered(entry, Generation(made.prompt_tokens, (), "", 0, "stop")) as job:
            await job.finished()
        if fault.kind == "disconnect":
            return _broken(request, entry)
        entry["status"] = "ok"
        return web.json_response(embeddings(made, self._profile.model))

    async def _generated(
        self, request: web.Request, made: Generation, form: Callable[[str, str], Speech]
    ) -> web.StreamResponse:
        entry = self._journal.open(request)
        fault = await self._met(entry)
        answer = form(entry["request_id"], self._profile.model)
        async with self._metered(entry, made) as job:
            if made.stream:
                return await self._streamed(request, entry, made, answer, job, fault)
            await job.finished()
        if fault.kind == "disconnect":
            return _broken(request, entry)
        entry["status"] = "ok"
        return web.json_response(answer.whole(made, job.cached_tokens))

    @asynccontextmanager
    async def _metered(self, entry: dict[str, Any], made: Generation) -> AsyncIterator[RunningJob]:
        """Run a job, and record what it used, however it ends."""
        job: RunningJob | None = None
        try:
            async with self._serving.job(made.prompt_tokens, made.made_tokens, made.chain) as job:
                yield job
        finally:
            if job is not None:
                self._journal.note(entry, job, made.finish_reason)

    async def _streamed(
        self,
        request: web.Request,
        entry: dict[str, Any],
        made: Generation,
        answer: Speech,
        job: RunningJob,
        fault: Fault,
    ) -> web.StreamResponse:
        """Send tokens as they are generated; tokens
        that are ready at the same time go into one chunk."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        sent = 0
        while sent < made.output_tokens:
            try:
                await self._serving.next_token(job)
            except EngineUnloaded:
                if not response.prepared:
                    raise
                _broken(request, entry)
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
                _broken(request, entry)
                return response
        for chunk in answer.last(made, job.cached_tokens):
            await response.write(answer.event(chunk))
        await response.write(answer.end)
        entry["status"] = "ok"
        return response

    async def _models(self, _request: web.Request) -> web.Response:
        model = {
            "id": self._profile.model,
            "object": "model",
            "created": 0,
            "owned_by": "hocket-emulator",
            "max_model_len": self._profile.max_model_tokens,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _met(self, entry: dict[str, Any]) -> Fault:
        """Deal a request its fault, and inject it if it happens before the engine is asked."""
        fault = self._faults.deal()
        if fault.kind == "status":
            entry["status"] = str(fault.status)
            raise Injected(fault)
        if fault.kind == "hang":
            entry["status"] = "hung"
            await asyncio.Event().wait()
        if fault.kind == "delay":
            await asyncio.sleep(self._serving.clock.real_s(fault.delay_s * 1000))
        return fault


def _broken(request: web.Request, entry: dict[str, Any]) -> web.StreamResponse:
    entry["status"] = "disconnected"
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _chat_answer(request_id: str, model: str) -> Speech:
    return Answer(request_id, model, int(time.time()), chat=True)


def _completion_answer(request_id: str, model: str) -> Speech:
    return Answer(request_id, model, int(time.time()), chat=False)


async def _object(request: web.Request) -> dict[str, Any]:
    text = await request.read()
    try:
        encoding = json.detect_encoding(text)
        body = json.loads(text.decode(encoding))
        if not encoding.startswith("utf-8") or ESCAPED_SURROGATE.search(text):
            json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        reason = "it contains half of a surrogate pair"
        raise requests.RequestInvalid(field="body", reason=reason) from None
    except ValueError as error:
        raise requests.RequestInvalid(field="body", reason=f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise requests.RequestInvalid(field="body", reason="not a JSON object")
    return body
