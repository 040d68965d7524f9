"""One MCP server, and the session with it that all calls share.

States of a session: opening (one task does the handshake and lists the tools; calls wait for it within
their time) -> open -> retired (the server has forgotten it, or it broke: new calls open another session,
and this one ends with its last call). Calls that a server refuses because it has forgotten the session
are made once more, in a new one that they share. A dedicated task owns a session, because the SDK
requires it to be closed in the task that opened it.
"""

import asyncio
import contextvars
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ListToolsRequest,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)
from pydantic import ValidationError

from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError, InvalidInput
from hocket.schemas.json_schema.schema import Schema, compile_schema
from hocket.schemas.templates.budget import Refused
from hocket.workers.http.services import Service
from hocket.workers.mcp.errors import (
    McpAnswerInvalid,
    McpRefused,
    McpSessionLost,
    McpTimeout,
    McpToolUnknown,
    McpUnreachable,
)
from hocket.workers.mcp.guard import GUARD, Guard
from hocket.workers.mcp.lost_sessions import SESSION_GONE, is_connection_lost, is_session_lost
from hocket.workers.mcp.parts import few_at_once
from hocket.workers.mcp.statuses import unread_reason
from hocket.workers.mcp.transport import McpTransport

OPENING_S = 15.0
MAX_TOOLS = 1_000
MAX_PAGES = 20
MAX_TOLD_SCHEMA_CHARS = 65_536
"""The limit on a tool's schema as models get it, and on its description."""
MAX_TOLD_DESCRIPTION_CHARS = 10_000
LISTED_AGAIN_MS = 5_000.0
"""How long to wait before the server is asked for its tools again: for one that was not listed, or whose
schema does not fit."""
CLOSING_S = 3.0
ResultT = TypeVar("ResultT")

for _name in ("mcp", "client"):  # errors are reported once, as the step's error
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@dataclass(slots=True)
class _Session:
    opened: "asyncio.Future[Client]"
    tools: dict[str, Tool] = field(default_factory=dict)
    listed_at_ms: float = 0.0
    retired: bool = False
    users: int = 0
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    owner: "asyncio.Task[None] | None" = None

    def retire(self) -> None:
        """Keep other calls from using it."""
        self.retired = True
        if not self.users:
            self.closing.set()


class McpServer:
    """Calls the tools of one server; `allowed` lists those that may be called."""

    def __init__(self, service: Service, allowed: tuple[str, ...]) -> None:
        self.service = service
        self.tenants = service.tenants
        self._allowed = allowed
        self._component = f"mcp:{service.name}"
        self._transport = McpTransport(service)
        self._session: _Session | None = None
        self._owners: set[asyncio.Task[None]] = set()

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        meta: dict[str, Any],
        timeout_ms: float,
        answered: Callable[[], None],
    ) -> CallToolResult:
        """Call a tool within `timeout_ms` and return its result, checked against the tool's schema.
        `answered` is called once the server answers, whatever its answer is."""

        async def called(session: _Session, client: Client, guard: Guard) -> CallToolResult:
            return await self._called(session, client, tool, arguments, meta, guard)

        return await self._within(timeout_ms, called, answered)

    async def described(self, tool: str, *, timeout_ms: float) -> dict[str, Any]:
        """Return the server's description of a tool: its `description`, and `parameters`, the JSON
        Schema of its arguments."""

        async def known(session: _Session, client: Client, guard: Guard) -> Tool:
            return await self._known(session, client, tool, guard, anew=True)

        found = await self._within(timeout_ms, known)
        if len(json.dumps(found.input_schema)) > MAX_TOLD_SCHEMA_CHARS:
            reason = (
                f"the input schema of `{tool}` has more than {MAX_TOLD_SCHEMA_CHARS} characters"
            )
            raise McpAnswerInvalid(reason=reason, component=self._component)
        described = (found.description or "")[:MAX_TOLD_DESCRIPTION_CHARS]
        return {"description": described, "parameters": found.input_schema}

    async def close(self) -> None:
        """End the sessions and the connections."""
        if self._session is not None:
            self._session.users = 0
            self._session.retire()
        if self._owners:
            _, running = await asyncio.wait(self._owners, timeout=CLOSING_S)
            for task in running:
                task.cancel()
        await self.service.close()

    async def _within(
        self,
        timeout_ms: float,
        ask: "Callable[[_Session, Client, Guard], Awaitable[ResultT]]",
        answered: Callable[[], None] | None = None,
    ) -> ResultT:
        """Run a request in the session within `timeout_ms`, opening a session if there is none."""
        guard = Guard(answered)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._in_session(ask, guard)
        except TimeoutError:
            raise McpTimeout(timeout_ms=round(timeout_ms), component=self._component) from None
        finally:
            guard.close()

    async def _in_session(
        self, ask: "Callable[[_Session, Client, Guard], Awaitable[ResultT]]", guard: Guard
    ) -> ResultT:
        """Run a request in the session; once more, in a new one, if the server has forgotten it."""
        try:
            return await self._using(self._opening(), ask, guard)
        except McpSessionLost:
            if guard.session_status != SESSION_GONE:
                raise
            return await self._using(self._opening(), ask, guard)

    async def _using(
        self,
        session: _Session,
        ask: "Callable[[_Session, Client, Guard], Awaitable[ResultT]]",
        guard: Guard,
    ) -> ResultT:
        session.users += 1
        try:
            client = await asyncio.shield(session.opened)
            return await ask(session, client, guard)
        finally:
            session.users -= 1
            if session.retired and not session.users:
                session.closing.set()

    async def _called(
        self,
        session: _Session,
        client: Client,
        tool: str,
        arguments: dict[str, Any],
        meta: dict[str, Any],
        guard: Guard,
    ) -> CallToolResult:
        known = await self._known(session, client, tool, guard)
        try:
            _check_arguments(known, arguments)
        except InvalidInput:  # unless the server has changed the schema since it was read
            known = await self._known(session, client, tool, guard, anew=True)
            _check_arguments(known, arguments)
        params = CallToolRequestParams(name=tool, arguments=arguments, _meta=meta)
        request = CallToolRequest(params=params)
        result: CallToolResult = await self._asked(client, session, request, CallToolResult, guard)
        async for parts in few_at_once(guard.received.parts):
            result.content.extend(_read(parts, self._component))
        try:
            _check_result(known, result, self._component)
        except McpAnswerInvalid as fault:
            try:
                known = await self._known(session, client, tool, guard, anew=True)
            except McpSessionLost:  # the tool has done its work, and must not be called again
                raise fault from None
            _check_result(known, result, self._component)
        return result

    async def _asked(
        self, client: Client, session: _Session, request: Any, result: type[Any], guard: Guard
    ) -> Any:
        """Return the answer to one request, or raise the first error of its call."""
        context = contextvars.copy_context()
        context.run(GUARD.set, guard)
        asking = asyncio.create_task(client.session.send_request(request, result), context=context)
        try:
            await asyncio.wait({asking, guard.broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asking.done():
                asking.cancel()
        if guard.broken.done():
            asking.cancel()
            asking.add_done_callback(_seen)
            error = guard.broken.result()
            if isinstance(error, McpUnreachable):
                session.retire()
            raise error
        try:
            return asking.result()
        except MCPError as error:
            raise self._refused(session, error, guard.session_status) from None
        except (ValidationError, RuntimeError, ValueError) as error:
            raise _invalid(error, self._component) from None

    def _refused(self, session: _Session, error: MCPError, status: int) -> HocketError:
        """Return the typed error for an error of the protocol."""
        reason = shown_text(error.message, 1_000)
        owner = session.owner
        if is_session_lost(error.code, error.message, status):
            session.retire()
            return McpSessionLost(reason=reason, component=self._component)
        if is_connection_lost(error.code, error.message) or owner is None or owner.done():
            session.retire()
            return McpUnreachable(reason=reason, component=self._component)
        return _error_of(error, self._component)

    async def _known(
        self, session: _Session, client: Client, name: str, guard: Guard, *, anew: bool = False
    ) -> Tool:
        """Return a tool that may be called, as the server describes it; raise McpToolUnknown
        otherwise. With `anew`, a description of LISTED_AGAIN_MS ago no longer counts."""
        if "*" in self._allowed or name in self._allowed:
            stale = monotonic_ms() - session.listed_at_ms > LISTED_AGAIN_MS
            if stale and (anew or name not in session.tools):
                await self._list(session, client, guard)
            if name in session.tools:
                return session.tools[name]
        known = sorted(one for one in session.tools if {"*", one} & set(self._allowed))
        shown = shown_text(", ".join(known[:20]) or "(none)", 1_000)
        raise McpToolUnknown(tool=name, known=shown, component=self._component)

    async def _list(self, session: _Session, client: Client, guard: Guard) -> None:
        tools: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            request = ListToolsRequest(params=PaginatedRequestParams(cursor=cursor))
            page = await self._asked(client, session, request, ListToolsResult, guard)
            tools |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS:
                break
        session.tools = dict(list(tools.items())[:MAX_TOOLS])
        session.listed_at_ms = monotonic_ms()

    # ---- sessions ---------------------------------------------------------------------------

    def _opening(self) -> _Session:
        """Return the session that is open or being opened."""
        session = self._session
        if session is None or session.retired or (session.owner and session.owner.done()):
            session = self._session = _Session(asyncio.get_running_loop().create_future())
            session.opened.add_done_callback(_seen)
            task = session.owner = asyncio.create_task(self._own(session))
            self._owners.add(task)
            task.add_done_callback(self._owners.discard)
        return session

    async def _own(self, session: _Session) -> None:
        """Open a session, and close it when asked to."""
        guard = Guard()
        GUARD.set(guard)
        try:
            async with asyncio.timeout(OPENING_S) as opening:
                http = httpx2.AsyncClient(transport=self._transport, timeout=None)
                url = self.service.settings.url
                streams = streamable_http_client(
                    url, http_client=http, max_sse_event_size=self.service.settings.max_bytes
                )
                async with Client(streams, cache=None) as client:
                    await self._list(session, client, guard)
                    opening.reschedule(None)
                    session.opened.set_result(client)
                    await session.closing.wait()
        except Exception as error:
            session.retire()
            if not session.opened.done():
                session.opened.set_exception(self._not_opened(error, guard))
        finally:
            session.retired = True
            guard.close()
            if not session.opened.done():
                session.opened.cancel()

    def _not_opened(self, error: Exception, guard: Guard) -> HocketError:
        if guard.broken.done():
            return guard.broken.result()
        if isinstance(error, HocketError):
            return error
        if isinstance(error, TimeoutError):
            return McpTimeout(timeout_ms=round(OPENING_S * 1000), component=self._component)
        if isinstance(error, ExceptionGroup):
            return self._not_opened(error.exceptions[0], guard)
        if isinstance(error, MCPError):
            return _error_of(error, self._component)
        return _invalid(error, self._component)


def _seen(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled():
        future.exception()


def _read(parts: Sequence[Any], component: str) -> list[ContentBlock]:
    """Return parts of a tool's answer, as the SDK reads them, or raise McpAnswerInvalid."""
    try:
        return CallToolResult.model_validate({"content": parts}, by_name=False).content
    except ValidationError as error:
        raise _invalid(error, component) from None


def _error_of(error: MCPError, component: str) -> HocketError:
    """Return the error for one that the server sent, or for an answer that the SDK could not read."""
    if unread := unread_reason(error.code, error.message):
        return McpAnswerInvalid(reason=shown_text(unread, 300), component=component)
    return McpRefused(reason=shown_text(error.message, 1_000), component=component)


def _invalid(error: Exception, component: str) -> McpAnswerInvalid:
    reason = shown_text(" ".join(str(error).split()) or type(error).__name__, 300)
    return McpAnswerInvalid(reason=reason, component=component)


def _check_arguments(tool: Tool, arguments: dict[str, Any]) -> None:
    """Raise InvalidInput if the tool's own schema can be read and refuses the arguments."""
    try:
        schema = _schema(tool.input_schema)
    except (HocketError, ValueError, RecursionError):
        return  # the server checks them as well
    schema.check(arguments, "arguments", f"Follow the input schema of the tool `{tool.name}`.")


def _check_result(tool: Tool, result: CallToolResult, component: str) -> None:
    """Raise McpAnswerInvalid if a result does not fit the tool's schema."""
    if tool.output_schema is None or result.is_error:
        return
    try:
        schema = _schema(tool.output_schema)
        fault = schema.fault(result.structured_content)
    except (HocketError, ValueError, RecursionError) as error:
        reason = f"the tool's output schema cannot be used ({shown_text(str(error), 300)})"
        raise McpAnswerInvalid(reason=reason, component=component) from None
    except Refused as error:
        raise McpAnswerInvalid(reason=error.reason, component=component) from None
    if fault is not None:
        place = ".".join(map(str, fault.path)) or "the whole"
        reason = f"it does not match the tool's output schema at `{place}`: {fault.message[:300]}"
        raise McpAnswerInvalid(reason=reason, component=component)


def _schema(described: dict[str, Any]) -> Schema:
    """Return a tool's schema; only small ones are kept, because a server may always have new ones."""
    text = json.dumps(described, sort_keys=True)
    small = len(text) <= MAX_TOLD_SCHEMA_CHARS
    return _compiled(text) if small else compile_schema(described, "schema")


@lru_cache(maxsize=256)
def _compiled(text: str) -> Schema:
    return compile_schema(json.loads(text), "schema")
