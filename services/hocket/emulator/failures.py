"""Turns failures into answers in the error format of the API in use."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from hocket.emulator.core import requests
from hocket.emulator.core.engine import EngineFull
from hocket.emulator.core.faults import Fault
from hocket.emulator.serving import EngineCold
from hocket.schemas.errors import ErrorClass, HocketError

MESSAGES = "/v1/messages"
OVERLOADED = 529
"""The status Anthropic's API uses where others use 503."""
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
}


class Injected(Exception):
    """A fault that is an answer."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.status)
        self.fault = fault


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions into error answers."""
    failed = _message_failed if request.path == MESSAGES else _failed
    try:
        return await handler(request)
    except Injected as injected:
        fault = injected.fault
        headers = {}
        if fault.retry_after_s is not None:
            headers["Retry-After"] = f"{fault.retry_after_s:g}"
        return failed(fault.status, "injected", f"injected fault ({fault.status})", headers)
    except RecursionError:  # of JSON's reader or writer: both count the levels of a value
        deep = requests.RequestInvalid(field="body", reason="it nests too deeply")
        return failed(400, deep.code, str(deep))
    except requests.ModelNotServed as error:
        return failed(404, error.code, str(error))
    except EngineFull as error:
        return failed(429, error.code, str(error), {"Retry-After": "1"})
    except EngineCold as error:
        return failed(503, error.code, str(error))
    except HocketError as error:
        status = 400 if error.error_class is ErrorClass.INVALID else 503
        return failed(status, error.code, str(error))


def _failed(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    kind = "rate_limit_error" if status == 429 else "server_error"
    if 400 <= status < 429:
        kind = "invalid_request_error"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)


def _message_failed(
    status: int, _code: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    status = OVERLOADED if status == 503 else status
    error = {"type": _ANTHROPIC_TYPES.get(status, "api_error"), "message": message}
    return web.json_response({"type": "error", "error": error}, status=status, headers=headers)
