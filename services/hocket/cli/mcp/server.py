"""The MCP server of a platform, built with the official SDK: streamable HTTP without sessions, and
stdio."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from aiohttp import ClientSession
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.applications import Starlette

from hocket.cli.mcp import runs
from hocket.cli.mcp.kept_api import KeptApi, connections
from hocket.cli.mcp.runs import Seen
from hocket.cli.mcp.tools import ANSWER, CANCEL_RUN, GET_RUN, RUN_TOOLS, Pipelines
from hocket.cli.remote.api import Api
from hocket.schemas.errors import HocketError, RunUnknown

DECISION = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean", "title": "Approve"},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["approved"],
}
"""The form that a person fills in for an approval."""

ApiFor = Callable[[str | None], Api]
"""Returns a client of the REST API for the caller's key, or for None if the caller presents none."""
Context = ServerRequestContext[ClientSession]


class McpPlatform:
    """Answers the requests of clients. A tool call waits up to `wait_ms` for its run."""

    def __init__(self, api_for: ApiFor, exported: Collection[str], wait_ms: float) -> None:
        self._api_for = api_for
        self._pipelines = Pipelines(exported)
        self._wait_ms = wait_ms

    def server(self, version: str) -> "Server[ClientSession]":
        """Return the SDK's server with these handlers."""
        return Server(
            "hocket",
            version=version,
            instructions="Each tool runs a pipeline. A run that takes long continues in the background: "
            f"get its result by run_id with {GET_RUN}.",
            lifespan=lambda _server: connections(),
            get_tool_input_schema=_no_header,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )

    async def list_tools(
        self, context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        """Return a page of tools; the tools for runs come first."""
        after = params.cursor if params is not None and params.cursor else ""
        try:
            tools, last = await self._pipelines.page(self._api(context), after)
        except HocketError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        return ListToolsResult(tools=[*([] if after else RUN_TOOLS), *tools], next_cursor=last)

    async def call_tool(
        self, context: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Run a pipeline, or perform an action on a run."""
        given = params.arguments or {}
        meta = dict(context.meta or {})
        try:
            api = self._api(context)
            if params.request_state is not None:
                return await self._go_on(context, api, params)
            if params.name == GET_RUN:
                run_id = await self._run_of(api, given)
                seen = await runs.wait(api, run_id, self._wait_ms)
            elif params.name == CANCEL_RUN:
                run_id = await self._run_of(api, given)
                await runs.cancel(api, run_id, str(given.get("reason") or "requested over MCP"))
                return _said(f"Cancellation of run {run_id} was requested.")
            elif params.name == ANSWER:
                return await self._answer(api, given)
            elif self._pipelines.is_exported(params.name):
                seen = await runs.begin(api, params.name, given, meta, self._wait_ms)
                if not seen.has_ended:
                    seen = await self._waited(api, seen)
            else:
                raise MCPError(INVALID_PARAMS, f"There is no tool `{params.name}`.")
        except HocketError as error:
            return runs.refused(error)
        return _told(context, seen)

    async def _waited(self, api: KeptApi, started: Seen) -> Seen:
        left_ms = max(0.0, self._wait_ms - runs.FIRST_WAIT_MS)
        try:
            return await runs.wait(api, started.run_id, left_ms)
        except HocketError as error:  # the run goes on, and only its id leads to its result
            return replace(started, unread=str(error))

    async def _go_on(
        self, context: Context, api: KeptApi, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Process a person's answers, and wait for the run, whose id is the request state."""
        run_id = await self._run_of(api, {"run_id": params.request_state})
        waiting = {one["step"] for one in (await runs.look(api, run_id)).approvals}
        answered: set[str] = set()
        for step, decision in (params.input_responses or {}).items():
            if step in waiting and isinstance(decision, ElicitResult):
                content = decision.content or {}
                approved = decision.action == "accept" and content.get("approved") is True
                note = str(content.get("note") or "")
                if decision.action != "cancel":
                    await runs.answer(api, run_id, step, approved=approved, note=note)
                    answered.add(step)
        seen = await runs.wait(api, run_id, self._wait_ms, answered)
        return _told(context, seen)

    async def _answer(self, api: KeptApi, given: dict[str, Any]) -> CallToolResult:
        run_id, step = await self._run_of(api, given), _text(given, "step")
        if not isinstance(given.get("approved"), bool):
            raise MCPError(INVALID_PARAMS, "`approved` must be true or false.")
        note = str(given.get("note") or "")
        await runs.answer(api, run_id, step, approved=given["approved"], note=note)
        return _said(f"The answer about `{step}` was sent to run {run_id}.")

    async def _run_of(self, api: KeptApi, given: dict[str, Any]) -> str:
        """Return the id of a run of an exported pipeline."""
        run_id = _text(given, "run_id")
        seen = await runs.look(api, run_id)
        if not self._pipelines.is_exported(seen.pipeline):
            raise RunUnknown(run_id=run_id)
        return run_id

    def _api(self, context: Context) -> KeptApi:
        request = context.request
        shown = None if request is None else request.headers.get("authorization")
        kind, _, key = (shown or "").partition(" ")
        api = self._api_for(key.strip() if kind.lower() == "bearer" and key.strip() else None)
        return KeptApi(context.lifespan_context, api)


async def serve_stdio(server: "Server[ClientSession]") -> None:
    """Serve one client over standard input and output until it disconnects."""
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def http_app(server: "Server[ClientSession]", host: str) -> Starlette:
    """Return the server as a web application at /mcp. On loopback addresses, only requests for these
    hosts are answered, against DNS rebinding."""
    return server.streamable_http_app(stateless_http=True, json_response=True, host=host)


def _told(context: Context, seen: Seen) -> CallToolResult | InputRequiredResult:
    """Return a run as a result or, if the client can ask a person, the decisions needed first."""
    capabilities = context.session.client_capabilities
    can_ask = capabilities is not None and capabilities.elicitation is not None
    if not seen.approvals or not can_ask:
        return runs.result_of(seen)
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return runs.result_of(seen)
    asked = {one["step"]: _question(one) for one in seen.approvals}
    return InputRequiredResult(input_requests=asked, request_state=seen.run_id)


def _question(approval: dict[str, Any]) -> ElicitRequest:
    message = approval.get("prompt") or f"Approve `{approval['step']}`?"
    form = ElicitRequestFormParams(message=message, requested_schema=DECISION)
    return ElicitRequest(params=form)


def _no_header(_tool: str) -> None:
    """Tell the SDK that no tool arguments come as headers, so that it does not list the tools on each
    call."""


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise MCPError(INVALID_PARAMS, f"`{name}` must be a string.")
    return value


def _said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)])
