"""Errors for requests that the HTTP door cannot take."""

from hocket.schemas.errors import ErrorClass, HocketError


class PathUnknown(HocketError):
    """There is no `{path}` here. See /openapi.json."""

    code = "not_found"
    error_class = ErrorClass.INVALID


class MethodNotAllowed(HocketError):
    """`{path}` does not accept {method}; use {allowed}."""

    code = "method_not_allowed"
    error_class = ErrorClass.INVALID


class QueryUnknown(HocketError):
    """There is no query parameter `{field}` here. Send none."""

    code = "query_unknown"
    error_class = ErrorClass.INVALID


class HttpMalformed(HocketError):
    """The request is not valid HTTP: {reason}."""

    code = "http_malformed"
    error_class = ErrorClass.INVALID


class HttpPortTaken(HocketError):
    """The gateway cannot listen on {host}:{port}: {reason}. Choose another port with
    HOCKET_GATEWAY_PORT, or with `--gateway-port` of `hocket up`."""

    code = "http_port_taken"
    error_class = ErrorClass.UNAVAILABLE
