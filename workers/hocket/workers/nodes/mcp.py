"""The `mcp` node: one call of a tool of a configured MCP server, checked and bounded."""

from functools import partial
from typing import TYPE_CHECKING, Any

from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import InvalidInput
from hocket.workers.call_time import call_time_ms
from hocket.workers.http.remote_calls import charge_request
from hocket.workers.mcp.errors import McpToolFailed
from hocket.workers.mcp.parts import few_at_once
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nodes.prompts.templates import render_value
from hocket.workers.runtime.execution.context import Context

if TYPE_CHECKING:
    from mcp_types import CallToolResult

MAX_TOLD_CHARS = 2_000
"""The limit on the text of a tool's failure."""
KEY = "hocket/idempotency-key"
"""A key in the call's `_meta`, whose value is the same for every attempt of a step."""


class McpNode:
    """Calls tools of the configured servers."""

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def __call__(self, context: Context) -> dict[str, Any]:
        """Return `{text, data, content}`: the tool's texts, its structured content, and everything else
        (images, links)."""
        config = context.config
        server = self._servers.get(config["server"], context.tenant)
        arguments = render_value(config.get("arguments") or {}, context.input, "arguments")
        if not isinstance(arguments, dict):
            raise InvalidInput(
                field="arguments", reason="they are not an object", cure="Write names and values."
            )
        result = await server.call(
            config["tool"],
            arguments,
            meta=_meta(context),
            timeout_ms=call_time_ms(context),
            answered=partial(charge_request, context, server.service.settings.request_usd),
        )
        if result.is_error:
            reason = shown_text(_text(result), MAX_TOLD_CHARS) or "it does not say why"
            component = f"mcp:{config['server']}"
            raise McpToolFailed(tool=config["tool"], reason=reason, component=component)
        return {
            "text": _text(result),
            "data": result.structured_content,
            "content": await _others(result),
        }


def _text(result: "CallToolResult") -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


async def _others(result: "CallToolResult") -> list[dict[str, Any]]:
    """Return what is no text."""
    others = [block for block in result.content if block.type != "text"]
    return [
        block.model_dump(mode="json", by_alias=True, exclude_none=True)
        async for blocks in few_at_once(others)
        for block in blocks
    ]


def _meta(context: Context) -> dict[str, Any]:
    """Return the metadata that identifies a call. It is the same for every attempt of a step, so that a
    server that supports it performs the call once."""
    step = context.step
    meta = {KEY: f"{step.run_id}:{step.step}"}
    return meta | ({"traceparent": context.traceparent} if context.traceparent else {})
