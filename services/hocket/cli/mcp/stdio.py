"""MCP over standard input and output, where each line is a message.

The SDK drops a line that it cannot read, and the client would wait for the answer. Here, it is answered
as over HTTP.
"""

import json
from types import TracebackType
from typing import Any, Self

import anyio
from aiohttp import ClientSession
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ValidationError

ONE_A_LINE = "Send one JSON-RPC message on each line"


async def serve_stdio(server: "Server[ClientSession]") -> None:
    """Serve one client over standard input and output until it disconnects."""
    async with stdio_server() as (reading, writing):
        answered = Messages(reading, writing)
        await server.run(answered, writing, server.create_initialization_options())


class Messages:
    """The messages that are read from a client; what is none is answered."""

    def __init__(self, reading: Any, writing: Any) -> None:
        self._reading = reading
        self._writing = writing

    @property
    def last_context(self) -> Any:
        """The context of the message that was read last, as the SDK looks for it."""
        return self._reading.last_context

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        while True:
            item: SessionMessage | Exception = await self._reading.receive()
            if not isinstance(item, ValidationError):
                return item
            if (refusal := refused(item)) is not None:
                await self._writing.send(SessionMessage(refusal))

    async def aclose(self) -> None:
        await self._reading.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def refused(error: ValidationError) -> JSONRPCError | None:
    """Return the answer to a line that is not a message; None if nobody waits for it."""
    faults = error.errors(include_url=False)
    first = faults[0]
    if first["type"] == "json_invalid":
        line = str(first["input"])
        if not line.strip():
            return None
        return _answer(PARSE_ERROR, f"{first['msg']}. {_cure_of(first['msg'])}", _id_in(line))
    missing = [fault["input"] for fault in faults if fault["type"] == "missing"]
    whole = next((given for given in missing if isinstance(given, dict)), None)
    if whole is None:
        return _answer(INVALID_REQUEST, f"It is not a JSON-RPC message. {ONE_A_LINE}.", None)
    if "method" not in whole or "id" not in whole:
        return None  # a notification, or an answer to a request of the server
    named = "`jsonrpc`, `id`, `method` and `params`"
    text = f"The request does not have the form of JSON-RPC: check {named}."
    return _answer(INVALID_REQUEST, text, _id(whole["id"]))


def _cure_of(fault: str) -> str:
    """Return what to do about JSON with this fault: half a character is one of an escape."""
    is_half = "surrogate" in fault or "hex escape" in fault
    return f"{ONE_A_LINE}{', with complete Unicode characters' if is_half else ''}."


def _answer(code: int, message: str, of: int | str | None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=of, error=ErrorData(code=code, message=message))


def _id_in(line: str) -> int | str | None:
    """Return the id of a request in JSON that only the SDK cannot read: one with half a character."""
    try:
        whole = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_request = isinstance(whole, dict) and "method" in whole
    return _id(whole.get("id")) if is_request else None


def _id(given: Any) -> int | str | None:
    """Return what may be the id of an answer."""
    if isinstance(given, str):
        return None if any("\ud800" <= char <= "\udfff" for char in given) else given
    return given if isinstance(given, int) and not isinstance(given, bool) else None
