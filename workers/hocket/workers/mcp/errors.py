"""What can go wrong with a tool, as typed errors; `component` is `mcp:<server>` where known."""

from hocket.schemas.errors import ErrorClass, HocketError


class McpServerInvalid(HocketError):
    """The MCP server `{server}` is not configured correctly: `{field}`: {reason}. {cure}"""

    code = "mcp_server_invalid"
    error_class = ErrorClass.PERMANENT


class McpServerUnknown(HocketError):
    """There is no MCP server `{server}` for this tenant; there are: {known}. Add it to the section
    `mcp_servers` of the workers' configuration."""

    code = "mcp_server_unknown"
    error_class = ErrorClass.INVALID


class McpToolUnknown(HocketError):
    """The server has no tool `{tool}`, or it may not be called; there are: {known}."""

    code = "mcp_tool_unknown"
    error_class = ErrorClass.INVALID


class McpUnreachable(HocketError):
    """The server cannot be reached: {reason}. Check its `url`, and that it runs."""

    code = "mcp_unreachable"
    error_class = ErrorClass.UNAVAILABLE
    retryable = True


class McpTimeout(HocketError):
    """The tool did not answer within {timeout_ms} ms. Give the node a longer `timeout_ms`."""

    code = "mcp_timeout"
    error_class = ErrorClass.TIMEOUT
    retryable = True


class McpFailed(HocketError):
    """The server answered {status}: it could not do what was asked."""

    code = "mcp_failed"
    error_class = ErrorClass.TRANSIENT
    retryable = True


class McpRateLimited(HocketError):
    """The server answered {status}: too many requests."""

    code = "mcp_rate_limited"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class McpNotAuthorized(HocketError):
    """The server answered {status}. Check the credentials in the server's `headers`."""

    code = "mcp_not_authorized"
    error_class = ErrorClass.PERMANENT


class McpRefused(HocketError):
    """The server refused the call: {reason}"""

    code = "mcp_refused"
    error_class = ErrorClass.INVALID


class McpToolFailed(HocketError):
    """The tool `{tool}` failed: {reason}"""

    code = "mcp_tool_failed"
    error_class = ErrorClass.PERMANENT


class McpAnswerTooLarge(HocketError):
    """The answer has more than {limit}. Ask for less, or raise `max_bytes` of the server."""

    code = "mcp_answer_too_large"
    error_class = ErrorClass.INVALID


class McpAnswerInvalid(HocketError):
    """The answer is not what it has to be: {reason}."""

    code = "mcp_answer_invalid"
    error_class = ErrorClass.INVALID
