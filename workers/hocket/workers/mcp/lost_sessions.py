"""Which errors say that a session is gone. Pure.

A tool may use the same codes and words, after it has done its work; so the HTTP status counts, too.
"""

from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

SESSION_GONE = 404
"""The status with which a server refuses a session that it does not have. It has done nothing else."""
_BAD_REQUEST = 400
_UNKNOWN_SESSION = -32_001
_OF_THE_REQUEST = (METHOD_NOT_FOUND, INVALID_PARAMS)
_CLOSED = "Connection closed"
_STREAM_ENDED = ("SSE stream ended", "SSE stream failed")


def is_session_lost(code: int, message: str, status: int) -> bool:
    """Return whether a server says that it does not have the session. `status` is that of the answer, or
    0 if the request named no session."""
    told = message.lower()
    if status == SESSION_GONE:
        return code not in _OF_THE_REQUEST
    if status == _BAD_REQUEST and code == CONNECTION_CLOSED:  # many servers after a restart
        return "session" in told or "not initialized" in told
    return "session" in told and code in (INVALID_REQUEST, _UNKNOWN_SESSION)


def is_connection_lost(code: int, message: str) -> bool:
    """Return whether the SDK says that the connection ended before there was an answer."""
    if code != CONNECTION_CLOSED:
        return False
    return message == _CLOSED or message.startswith(_STREAM_ENDED)
