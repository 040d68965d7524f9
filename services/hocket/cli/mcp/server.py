"""The MCP server of a platform, built with the official SDK; over HTTP without sessions."""

from collections.abc import Callable, Collection
from typing import Any

from aiohttp import ClientSession
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
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
from hocket.cli.mcp.own_api import OwnApi
from hocket.cli.mcp.runs import Seen
from hocket.cli.mcp.tools import ANSWER, CANCEL_RUN, GET_RUN, RUN_TOOLS, Pipelines
from hocket.cli.remote.api import Api
from hocket.cli.terminal.errors import ApiRefused, KeyNeeded, may_appear, may_pass
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import ErrorClass, HocketError, RunUnknown

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
"""Returns a client of the REST API for the caller's key, or for None if the caller presents none: that
may take long, and is called in a thread."""
Context = ServerRequestContext[ClientSession]


class McpPlatform:
    """Answers the requests of clients. A tool call waits up to `wait_ms` for its run."""

    def __init__(self, api_for: ApiFor, exported: Collection[str], wait_ms: float) -> None:
        self._api_for = api_for
        self._own_api = OwnApi(lambda: api_for(None))
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
            tools, last = await self._pipelines.page(await self._api(context), after)
        except HocketError as error:
            raise MCPError(_code_of(error), str(error)) from None
        return ListToolsResult(tools=[*([] if after else RUN_TOOLS), *tools], next_cursor=last)

    async def call_tool(
        self, context: Context, params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Run a pipeline, or perform an action on a run."""
        given = params.arguments or {}
        until_ms = monotonic_ms() + self._wait_ms
        try:
            api = await self._api(context)
            if params.request_state is not None:
                return await self._go_on(context, api, params, until_ms)
            if params.name in (GET_RUN, CANCEL_RUN, ANSWER):
                return await self._of_run(context, api, params.name, given, until_ms)
            if not self._pipelines.is_exported(params.name):
                raise MCPError(INVALID_PARAMS, f"There is no tool `{params.name}`.")
            meta = dict(context.meta or {})
            seen = await runs.begin(api, params.name, given, meta, self._wait_ms)
        except HocketError as error:
            return runs.refused(error)
        if not seen.has_ended:
            seen = await runs.wait(api, seen, until_ms)
        return _told(context, seen)

    async def _of_run(
        self, context: Context, api: KeptApi, tool: str, given: dict[str, Any], until_ms: float
    ) -> CallToolResult | InputRequiredResult:
        """Perform an action on a run: one of RUN_TOOLS."""
        run_id = _text(given, "run_id")
        if tool == ANSWER:
            _check_answer(given)
        try:
            seen = await self._found(api, run_id, until_ms)
            if tool != GET_RUN:
                return _said(await _change(api, tool, run_id, given))
        except HocketError as error:
            if may_appear(error, run_id):
                return runs.not_there(error, run_id, is_error=tool != GET_RUN)
            return runs.refused(error, run_id if may_pass(error) else "")
        if not (seen.has_ended or seen.approvals):
            seen = await runs.wait(api, seen, until_ms)
        return _told(context, seen)

    async def _go_on(
        self, context: Context, api: KeptApi, params: CallToolRequestParams, until_ms: float
    ) -> CallToolResult | InputRequiredResult:
        """Process a person's answers, and wait for the run, whose id is the request state. If the person
        dismissed a form, the run is told as it is: asked at once, they would dismiss it again."""
        run_id, answered, is_dismissed = str(params.request_state), set[str](), False
        try:
            seen = await self._found(api, run_id, until_ms)
            waiting = {one["step"] for one in seen.approvals}
            for step, decision in (params.input_responses or {}).items():
                if step not in waiting or not isinstance(decision, ElicitResult):
                    continue
                if decision.action == "cancel":
                    is_dismissed = True
                    continue
                content = decision.content or {}
                approved = decision.action == "accept" and content.get("approved") is True
                note = str(content.get("note") or "")
                await runs.answer(api, run_id, step, approved=approved, note=note)
                answered.add(step)
        except HocketError as error:
            return runs.refused(error, run_id)
        seen = await runs.wait(api, seen, until_ms, answered)
        return runs.result_of(seen) if is_dismissed else _told(context, seen)

    async def _found(self, api: KeptApi, run_id: str, until_ms: float) -> Seen:
        """Return a run of an exported pipeline."""
        seen = await runs.find(api, run_id, until_ms)
        if not self._pipelines.is_exported(seen.pipeline):
            raise RunUnknown(run_id=run_id)
        return seen

    async def _api(self, context: Context) -> KeptApi:
        request = context.request
        shown = None if request is None else request.headers.get("authorization")
        kind, _, key = (shown or "").partition(" ")
        is_shown = kind.lower() == "bearer" and bool(key.strip())
        api = self._api_for(key.strip()) if is_shown else await self._own_api.get()
        return KeptApi(context.lifespan_context, api)


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


def _code_of(error: HocketError) -> int:
    """Return the code of an error: the caller has to change something, or the platform fails."""
    is_refused = isinstance(error, ApiRefused | KeyNeeded)
    is_invalid = is_refused and error.info().error_class is ErrorClass.INVALID
    return INVALID_PARAMS if is_invalid else INTERNAL_ERROR


def _question(approval: dict[str, Any]) -> ElicitRequest:
    message = approval.get("prompt") or f"Approve `{approval['step']}`?"
    form = ElicitRequestFormParams(message=message, requested_schema=DECISION)
    return ElicitRequest(params=form)


async def _change(api: KeptApi, tool: str, run_id: str, given: dict[str, Any]) -> str:
    """Cancel a run, or answer an approval that it waits for; return what was done."""
    if tool == CANCEL_RUN:
        await runs.cancel(api, run_id, str(given.get("reason") or "requested over MCP"))
        return f"Cancellation of run {run_id} was requested."
    step, note = given["step"], str(given.get("note") or "")
    await runs.answer(api, run_id, step, approved=given["approved"], note=note)
    return f"The answer about `{step}` was sent to run {run_id}."


def _check_answer(given: dict[str, Any]) -> None:
    _text(given, "step")
    if not isinstance(given.get("approved"), bool):
        raise MCPError(INVALID_PARAMS, "`approved` must be true or false.")


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
