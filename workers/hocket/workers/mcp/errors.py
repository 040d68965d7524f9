"""The typed errors of a tool call; `component` is `mcp:<server>` if the server is known."""

from hocket.schemas.errors import ErrorClass, HocketError
from hocket.workers.http.remote_errors import (
    RemoteAnswerInvalid,
    RemoteAnswerTooLarge,
    RemoteFailed,
    RemoteMisconfigured,
    RemoteNotAuthorized,
    RemoteNotConfigured,
    RemoteRateLimited,
    RemoteRefused,
    RemoteTimeout,
    RemoteUnreachable,
)


class McpServerInvalid(RemoteMisconfigured):
    """The MCP server `{server}` is not configured correctly: `{field}`: {reason}. {cure}"""

    code = "mcp_server_invalid"


class McpServerUnknown(RemoteNotConfigured):
    """There is no MCP server `{server}` for this tenant; its servers: {known}. Add it to the section
    `mcp_servers` of the workers' configuration."""

    code = "mcp_server_unknown"


class McpToolUnknown(RemoteRefused):
    """The server has no tool `{tool}`, or it may not be called; available tools: {known}."""

    code = "mcp_tool_unknown"


class McpUnreachable(RemoteUnreachable):
    """The server cannot be reached: {reason}. Check its `url`, and that it runs."""

    code = "mcp_unreachable"


class McpSessionLost(McpUnreachable):
    """The server has ended the session: {reason}. The next call opens a new one."""


class McpTimeout(RemoteTimeout):
    """The tool did not answer within {timeout_ms} ms. Give the node a longer `timeout_ms`."""

    code = "mcp_timeout"


class McpFailed(RemoteFailed):
    """The server answered {status}: it could not do what was asked."""

    code = "mcp_failed"


class McpRateLimited(RemoteRateLimited):
    """The server answered {status}: too many requests."""

    code = "mcp_rate_limited"


class McpNotAuthorized(RemoteNotAuthorized):
    """The server answered {status}. Check the credentials in the server's `headers`."""

    code = "mcp_not_authorized"


class McpRefused(RemoteRefused):
    """The server refused the call: {reason}"""

    code = "mcp_refused"


class McpToolFailed(HocketError):
    """The tool `{tool}` failed: {reason}"""

    code = "mcp_tool_failed"
    error_class = ErrorClass.PERMANENT


class McpAnswerTooLarge(RemoteAnswerTooLarge):
    """The answer has more than {limit}. Ask for less, or raise `max_bytes` of the server."""

    code = "mcp_answer_too_large"


class McpAnswerInvalid(RemoteAnswerInvalid):
    """The answer is not what it must be: {reason}."""

    code = "mcp_answer_invalid"
