"""The `mcp` node against servers that lose sessions, close streams and fail, as they may."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
)

from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.workers.mcp import server as server_module
from hocket.workers.mcp import transport as transport_module
from hocket.workers.mcp.answers import MAX_BLOCKS
from hocket.workers.mcp.parts import PARTS_AT_ONCE
from hocket.workers.mcp.servers import McpServers
from hocket.workers.mcp.statuses import fault_of
from hocket.workers.nodes.mcp import McpNode

Ask = Callable[..., Awaitable[dict[str, Any]]]
Tool = Callable[["Server", Any, asyncio.StreamWriter], Awaitable[None]]
FINE = {"content": [{"type": "text", "text": "fine"}]}
JSON = "application/json"


class Server:
    """Speaks the protocol by hand. It has sessions, of which it can forget all."""

    def __init__(self, **tools: Tool) -> None:
        self.tools: dict[str, Tool] = {"good": good, **tools}
        self.described: dict[str, Any] = {"inputSchema": {"type": "object"}}
        self.requests: list[str] = []
        self.continued: Callable[[Server, str, asyncio.StreamWriter], Awaitable[None]] | None = None
        """Answers the requests for the rest of a stream, if there can be any."""
        self.discovered: tuple[str, bytes] = ("400 Bad Request", b"")
        self.refusal: tuple[str, bytes, str] = ("404 Not Found", b"", JSON)
        """Its answer to a request in a session that it does not have."""
        self.keeps_sessions = True
        self.sessions: set[str] = set()
        self.made = 0

    def count(self, method: str) -> int:
        return self.requests.count(method)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r")[0] or 0)
                body = await reader.readexactly(length)
                if head.startswith("get"):
                    self.requests.append("GET")
                    assert self.continued is not None
                    await self.continued(self, head, writer)
                else:
                    await self.answer(json.loads(body or b"{}"), head, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, request: dict[str, Any], head: str, writer: Any) -> None:
        method, number = request.get("method", "DELETE"), request.get("id")
        self.requests.append(method)
        session = head.partition("mcp-session-id: ")[2].partition("\r")[0]
        if method == "server/discover":
            await self.send(writer, self.discovered[1], self.discovered[0])
        elif method == "initialize":
            await self.begin(number, writer)
        elif session not in self.sessions:
            status, body, kind = self.refusal
            await self.send(writer, body, status, kind=kind)
        elif number is None:
            await self.send(writer, b"", "202 Accepted")
        elif method == "tools/list":
            tools = [{"name": name, **self.described} for name in self.tools]
            await self.result(writer, number, {"tools": tools})
            if not self.keeps_sessions:
                self.sessions.clear()
        else:
            await self.tools[request["params"]["name"]](self, number, writer)

    async def begin(self, number: Any, writer: Any) -> None:
        self.made += 1
        self.sessions.add(f"s{self.made}")
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "by hand", "version": "1"},
        }
        body = message(number, result=result)
        await self.send(writer, body, "200 OK", f"Mcp-Session-Id: s{self.made}")

    async def result(self, writer: Any, number: Any, result: Any) -> None:
        await self.send(writer, message(number, result=result))

    async def send(
        self, writer: Any, body: bytes, status: str = "200 OK", *headers: str, kind: str = JSON
    ) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
        writer.write("\r\n".join([*lines, *headers, "", ""]).encode() + body)
        await writer.drain()


def message(number: Any, **fields: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, **fields}).encode()


def error(number: Any, code: int, text: str) -> bytes:
    return message(number, error={"code": code, "message": text})


async def good(it: Server, number: Any, writer: Any) -> None:
    await it.result(writer, number, FINE)


async def stream(writer: Any, *parts: bytes) -> None:
    """Send a whole stream, and close the connection."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    writer.write(head + b"".join(parts))
    await writer.drain()
    writer.close()


def says(body: bytes, status: str = "200 OK", *headers: str) -> Tool:
    async def tool(it: Server, number: Any, writer: Any) -> None:
        await it.send(writer, body.replace(b"NUMBER", str(number).encode()), status, *headers)

    return tool


def streams(*parts: bytes) -> Tool:
    async def tool(it: Server, number: Any, writer: Any) -> None:
        await stream(writer, *(part.replace(b"NUMBER", str(number).encode()) for part in parts))

    return tool


@asynccontextmanager
async def served(it: Server, **entry: Any) -> AsyncIterator[Ask]:
    listening = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    servers = McpServers({"it": {"url": url, "private": True, **entry}}, {})
    node = McpNode(servers)

    async def ask(tool: str, within_ms: float = 20_000, charge: Any = None) -> dict[str, Any]:
        context = SimpleNamespace(
            config={"server": "it", "tool": tool, "arguments": {}},
            input={},
            tenant="t",
            deadline_at_ms=now_ms() + within_ms,
            step=SimpleNamespace(run_id="r1", step="a"),
            traceparent=None,
            charge=charge,
        )
        return await node(cast(Any, context))

    try:
        yield ask
    finally:
        await servers.close()
        await asyncio.sleep(0.05)  # a connection that is being accepted would be left open
        listening.close()
        gc.collect()


async def refused(asking: Awaitable[Any]) -> ErrorInfo:
    with pytest.raises(HocketError) as raised:
        await asking
    return raised.value.info()


# ---- calls that share a session ---------------------------------------------------------------


async def unharmed(it: Server, ask: Ask, running: asyncio.Event, may_end: asyncio.Event) -> str:
    """Call the tool `odd` during a call of the tool `slow`, which must not notice; return the error."""
    slow = asyncio.create_task(ask("slow"))
    try:
        await running.wait()
        code = (await refused(ask("odd"))).code
    finally:
        may_end.set()
    assert (await slow)["text"] == "fine"
    assert it.made == 1
    return code


def waiting(running: asyncio.Event, may_end: asyncio.Event) -> Tool:
    async def tool(it: Server, number: Any, writer: Any) -> None:
        running.set()
        await may_end.wait()
        await it.result(writer, number, FINE)

    return tool


@pytest.mark.parametrize("kind", ["application/json;charset*", 'text/html; charset="', "\x80;="])
async def test_an_odd_content_type_fails_its_own_call_only(kind: str) -> None:
    async def odd(it: Server, number: Any, writer: Any) -> None:
        await it.send(writer, b"{}", "500 Oops", kind=kind)

    running, may_end = asyncio.Event(), asyncio.Event()
    it = Server(slow=waiting(running, may_end), odd=odd)
    async with served(it) as ask:
        assert await unharmed(it, ask, running, may_end) == "mcp_failed"


async def test_an_answer_that_cannot_be_handled_fails_its_own_call_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unready(response: Any, component: str) -> HocketError | None:
        if "x-odd" in response.headers:
            raise IndexError("something that nobody thought of")
        return fault_of(response, component)

    monkeypatch.setattr(transport_module, "fault_of", unready)

    async def odd(it: Server, number: Any, writer: Any) -> None:
        await it.send(writer, message(number, result=FINE), "200 OK", "X-Odd: 1")

    running, may_end = asyncio.Event(), asyncio.Event()
    it = Server(slow=waiting(running, may_end), odd=odd)
    async with served(it) as ask:
        assert await unharmed(it, ask, running, may_end) == "mcp_answer_invalid"


@pytest.mark.parametrize(
    ("count", "code"),
    [(PARTS_AT_ONCE, ""), (MAX_BLOCKS, ""), (MAX_BLOCKS + 1, "mcp_answer_invalid")],
)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_answer_of_too_many_parts_is_refused(
    count: int, code: str, is_stream: bool
) -> None:
    parts = [{"type": "text", "text": ""}] * count

    async def many(it: Server, number: Any, writer: Any) -> None:
        body = message(number, result={"content": parts})
        if is_stream:
            await stream(writer, b"data: " + body + b"\n\n")
        else:
            await it.send(writer, body)

    async with served(Server(many=many)) as ask:
        if not code:
            assert (await ask("many"))["text"] == "\n" * (count - 1)
            return
        error = await refused(ask("many"))
        assert error.code == code
        assert f"it has {count} parts; the limit is {MAX_BLOCKS}" in error.message


@pytest.mark.parametrize("is_stream", [False, True])
async def test_an_answer_of_many_parts_is_read_some_at_once(
    monkeypatch: pytest.MonkeyPatch, is_stream: bool
) -> None:
    """Nothing else goes on while parts are read."""
    count, sizes, read = 5 * PARTS_AT_ONCE, [], server_module._read

    def measured(parts: Any, component: str) -> Any:
        sizes.append(len(parts))
        return read(parts, component)

    async def many(it: Server, number: Any, writer: Any) -> None:
        body = message(number, result={"content": parts, "structuredContent": {"ö": [1.5e300]}})
        if is_stream:
            await stream(writer, b"id: 7\nevent: message\ndata: " + body + b"\n\n")
        else:
            await it.send(writer, body)

    monkeypatch.setattr(server_module, "_read", measured)
    links = [{"type": "resource_link", "uri": f"file:///{i}", "name": f"{i}"} for i in range(count)]
    parts = [part for i in range(count) for part in (links[i], {"type": "text", "text": f"ö{i}"})]
    async with served(Server(many=many)) as ask:
        told = await ask("many")
        parts[-2] = {"type": "nothing"}
        assert (await refused(ask("many"))).code == "mcp_answer_invalid"
        del parts[PARTS_AT_ONCE:]
        assert len((await ask("many"))["content"]) == PARTS_AT_ONCE // 2
    assert told["text"] == "\n".join(f"ö{i}" for i in range(count))
    assert told["content"] == links
    assert told["data"] == {"ö": [1.5e300]}
    assert sizes == [PARTS_AT_ONCE] * 20, "the last answer is read by the SDK"


# ---- sessions that the server ended ---------------------------------------------------------


REFUSALS = [
    (b"", JSON),
    (error(None, INVALID_REQUEST, "Session not found"), JSON),
    (error(None, -32_001, "Session not found"), JSON),
    (error(None, CONNECTION_CLOSED, "gone"), JSON),
    (b"session not found", "text/plain"),
    (b"<html>no", JSON),
]


@pytest.mark.parametrize(("body", "kind"), REFUSALS)
async def test_calls_in_a_lost_session_are_made_again_in_one_new_session(
    body: bytes, kind: str
) -> None:
    it = Server()
    it.refusal = ("404 Not Found", body, kind)
    charges: list[Decimal] = []
    async with served(it, request_usd="0.25") as ask:
        await ask("good", charge=charges.append)
        it.sessions.clear()
        calls = [ask("good", charge=charges.append) for _ in range(10)]
        assert [one["text"] for one in await asyncio.gather(*calls)] == ["fine"] * 10
        await ask("good", charge=charges.append)
    assert it.made == 2
    assert charges == [Decimal("0.25")] * 12


async def test_a_call_is_made_again_only_once() -> None:
    it = Server()
    it.keeps_sessions = False
    async with served(it) as ask:
        info = await refused(ask("good"))
    assert (info.code, info.error_class, info.retryable) == (
        "mcp_unreachable",
        "unavailable",
        True,
    )
    assert "The server has ended the session: Session terminated." in info.message
    assert (it.made, it.count("tools/call")) == (2, 2)


@pytest.mark.parametrize("code", [METHOD_NOT_FOUND, INVALID_PARAMS])
async def test_a_404_about_the_request_is_no_lost_session(code: int) -> None:
    it = Server(odd=says(error(1, code, "no such order"), "404 Not Found"))
    async with served(it) as ask:
        assert (await refused(ask("odd"))).code == "mcp_refused"
        await ask("good")
    assert (it.made, it.count("tools/call")) == (1, 2)


async def test_a_tool_that_has_run_is_not_called_again_when_the_session_is_lost_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def last(it: Server, number: Any, writer: Any) -> None:
        it.sessions.clear()
        await it.result(writer, number, FINE | {"structuredContent": {}})

    monkeypatch.setattr(server_module, "LISTED_AGAIN_MS", -1.0)
    it = Server(last=last)
    it.described |= {"outputSchema": {"type": "object", "required": ["total"]}}
    async with served(it) as ask:
        info = await refused(ask("last"))
    assert info.code == "mcp_answer_invalid"
    assert it.count("tools/call") == 1


async def test_a_server_that_started_anew_may_say_so_with_400() -> None:
    it = Server()
    refusal = error(None, CONNECTION_CLOSED, "Bad Request: Server not initialized")
    it.refusal = ("400 Bad Request", refusal, JSON)
    async with served(it) as ask:
        await ask("good")
        it.sessions.clear()
        info = await refused(ask("good"))
        assert (info.code, info.retryable) == ("mcp_unreachable", True)
        await ask("good")
    assert it.made == 2


async def test_a_tools_error_with_the_code_of_a_closed_connection_is_the_tools() -> None:
    refusal = error(None, CONNECTION_CLOSED, "quota used up")
    it = Server(quota=says(refusal.replace(b"null", b"NUMBER")))
    async with served(it) as ask:
        info = await refused(ask("quota"))
        assert (info.code, info.retryable) == ("mcp_refused", False)
        assert "quota used up" in info.message
        await ask("good")
    assert it.made == 1


async def test_a_stream_that_ends_without_an_answer_is_a_lost_connection() -> None:
    async with served(Server(ends=streams(b"data: \n\n"))) as ask:
        info = await refused(ask("ends"))
        assert (info.code, info.retryable) == ("mcp_unreachable", True)


# ---- streams that are continued -------------------------------------------------------------

OPENED = b"id: e1\nretry: 20\ndata:\n\n"


async def waits(it: Server, number: Any, writer: Any) -> None:
    it.number = number  # type: ignore[attr-defined]
    await stream(writer, OPENED)


async def breaks_off(it: Server, number: Any, writer: Any) -> None:
    it.number = number  # type: ignore[attr-defined]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
    writer.write(head + OPENED)
    await writer.drain()
    await asyncio.sleep(0.1)
    writer.transport.abort()


async def the_rest(it: Any, head: str, writer: Any) -> None:
    assert "last-event-id: e1\r\n" in head
    assert "mcp-session-id: s1\r\n" in head
    if it.count("GET") == 1:  # not at once
        await it.send(writer, b"", "503 Service Unavailable")
    elif it.count("GET") == 2:
        await stream(writer, b"retry: 20\n\n")
    else:
        await stream(writer, b"id: e2\ndata: " + message(it.number, result=FINE) + b"\n\n")


@pytest.mark.parametrize("tool", [waits, breaks_off])
async def test_a_stream_that_was_closed_is_continued_and_the_tool_runs_once(tool: Tool) -> None:
    it = Server(tool=tool)
    it.continued = the_rest
    async with served(it) as ask:
        assert (await ask("tool"))["text"] == "fine"
    assert (it.count("GET"), it.count("tools/call"), it.made) == (3, 1, 1)


async def test_a_stream_without_end_is_bounded_and_costs_only_its_call() -> None:
    async def empty(it: Server, head: str, writer: Any) -> None:
        await stream(writer, b"id: e1\nretry: 0\n\n")

    it = Server(waits=waits)
    it.continued = empty
    async with served(it) as ask:
        info = await refused(ask("waits", within_ms=60_000))
        assert info.code == "mcp_answer_too_large"
        assert "more than 500 streams" in info.message
        await ask("good")
    assert (it.count("GET"), it.made) == (transport_module.MAX_STREAMS, 1)


async def test_the_bound_of_an_answer_is_that_of_all_its_streams() -> None:
    async def part(it: Server, head: str, writer: Any) -> None:
        await stream(writer, b"id: e1\nretry: 0\n", b": " + b"x" * 40_000 + b"\n\n")

    it = Server(waits=waits)
    it.continued = part
    async with served(it, max_bytes=100_000) as ask:
        assert (await refused(ask("waits"))).code == "mcp_answer_too_large"
    assert it.count("GET") == 3


async def test_a_call_that_is_over_asks_for_no_rest() -> None:
    async def hangs(it: Server, head: str, writer: Any) -> None:
        await asyncio.sleep(60)

    it = Server(waits=waits)
    it.continued = hangs
    async with served(it) as ask:
        assert (await refused(ask("waits", within_ms=500))).code == "mcp_timeout"
        await asyncio.sleep(0.2)
        await ask("good")
    assert (it.count("GET"), it.made) == (1, 1)


@pytest.mark.parametrize("retry", [b"9" * 400, b"9" * 15])
async def test_a_server_cannot_have_us_wait_for_ages(retry: bytes) -> None:
    it = Server(waits=streams(b"id: e1\nretry: " + retry + b"\ndata:\n\n"))
    async with served(it) as ask:
        assert (await refused(ask("waits", within_ms=500))).code == "mcp_timeout"
        await ask("good")
    assert it.made == 1


# ---- connections, sizes and statuses --------------------------------------------------------


async def test_waiting_for_a_connection_is_up_to_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(it: Server, number: Any, writer: Any) -> None:
        await asyncio.sleep(0.6)
        await good(it, number, writer)

    monkeypatch.setattr(transport_module, "CONNECT_S", 0.2)
    it = Server(slow=slow)
    async with served(it, concurrency=1) as ask:
        answers = await asyncio.gather(*(ask("slow") for _ in range(3)))
        assert [one["text"] for one in answers] == ["fine"] * 3
        first = asyncio.create_task(ask("slow"))
        await asyncio.sleep(0.1)
        assert (await refused(ask("slow", within_ms=200))).code == "mcp_timeout"
        await first
    assert it.made == 1


MARKED = json.dumps({"content": [{"type": "text", "text": "data: x, " * 3_000}]}).encode()
ANSWERS = {
    "in JSON": says(b'{"jsonrpc":"2.0","id":NUMBER,"result":' + MARKED + b"}"),
    "in an event": streams(b'data: {"jsonrpc":"2.0","id":NUMBER,"result":' + MARKED + b"}\n\n"),
    "comments": streams(
        b": data: here I am\n\n" * 3_000,
        b'data: {"jsonrpc":"2.0","id":NUMBER,"result":' + json.dumps(FINE).encode() + b"}\n\n",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_only_events_count_as_events(name: str) -> None:
    async with served(Server(tool=ANSWERS[name])) as ask:
        assert (await ask("tool"))["text"]


@pytest.mark.parametrize("tiny", [b"data:\n\n", b"data\n\n", b"id:1\n\n", b"x\n\n", b"retry:1\r\r"])
async def test_many_tiny_events_are_too_many(tiny: bytes) -> None:
    async with served(Server(floods=streams(tiny * 2_001), good=good)) as ask:
        info = await refused(ask("floods"))
        assert info.code == "mcp_answer_too_large"
        assert "2000 events" in info.message
        await ask("good")


BUSY = b'{"message": "Service Unavailable"}'


@pytest.mark.parametrize("body", [BUSY, b"", b"<html>", b"[" * 5_000])
@pytest.mark.parametrize(
    "status", ["500 Internal Server Error", "502 Bad Gateway", "503 Service Unavailable"]
)
async def test_a_failed_server_is_asked_again(status: str, body: bytes) -> None:
    it = Server(fails=says(body, status))
    async with served(it) as ask:
        info = await refused(ask("fails"))
        assert (info.code, info.error_class, info.retryable) == ("mcp_failed", "transient", True)
        assert info.message.startswith(f"The server answered {status[:3]}")
        await ask("good")
    assert it.made == 1


UNREAD = "it is not a message of JSON-RPC"


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        (says(b'{"jsonrpc":"2.0","id":NUMBER}'), UNREAD),
        (says(b'{"jsonrpc":"2.0","id":NUMBER,"result":null}'), UNREAD),
        (says(b'{"jsonrpc":"2.0","id":NUMBER,"error":{"code":"x","message":"y"}}'), UNREAD),
        (says(b"[1]"), UNREAD),
        (streams(b'data: {"jsonrpc":"2.0","id":NUMBER}\n\n'), UNREAD),
        (says(b"", "202 Accepted"), "202 Accepted"),
    ],
    ids=["nothing", "null", "no error", "list", "event", "202"],
)
async def test_an_answer_that_is_no_message_of_the_protocol_is_not_valid(
    tool: Tool, says: str
) -> None:
    it = Server(odd=tool)
    async with served(it) as ask:
        info = await refused(ask("odd"))
        assert (info.code, info.retryable) == ("mcp_answer_invalid", False)
        assert says in info.message
        await ask("good")
    assert it.made == 1


@pytest.mark.parametrize("code", [PARSE_ERROR, INVALID_REQUEST])
async def test_an_error_about_the_request_is_a_refusal_whatever_its_code(code: int) -> None:
    refusal = error(None, code, "I could not read that").replace(b"null", b"NUMBER")
    async with served(Server(refuses=says(refusal))) as ask:
        assert (await refused(ask("refuses"))).code == "mcp_refused"


async def test_an_error_of_the_protocol_is_an_answer_at_any_status() -> None:
    refusal = error(None, -32_050, "no such shelf")
    async with served(Server(refuses=says(refusal, "500 Internal Server Error"))) as ask:
        info = await refused(ask("refuses"))
    assert (info.code, info.retryable) == ("mcp_refused", False)
    assert "no such shelf" in info.message


async def test_a_server_of_before_may_fail_at_the_method_that_it_does_not_know() -> None:
    it = Server()
    it.discovered = ("500 Internal Server Error", BUSY)
    async with served(it) as ask:
        await ask("good")


IN_AN_HOUR = "in an hour"


@pytest.mark.parametrize(
    ("told", "wait_s"),
    [
        ("120", 120.0),
        (IN_AN_HOUR, 3_600.0),
        ("999999999", 86_400.0),
        ("0", 0.0),
        ("soon", None),
        ("", None),
    ],
)
@pytest.mark.parametrize(
    ("status", "code"),
    [("429 Too Many Requests", "mcp_rate_limited"), ("503 Service Unavailable", "mcp_failed")],
)
async def test_a_server_says_when_to_call_again(
    status: str, code: str, told: str, wait_s: float | None
) -> None:
    began_ms = now_ms()
    if told == IN_AN_HOUR:
        told = formatdate(began_ms / 1_000 + 3_600, usegmt=True)
    async with served(Server(busy=says(BUSY, status, f"Retry-After: {told}"))) as ask:
        await ask("good")
        info = await refused(ask("busy"))
    took_ms = now_ms() - began_ms
    assert info.code == code
    if wait_s is None:
        assert info.retry_at_ms is None
    else:
        assert info.retry_at_ms is not None
        assert -1_000 <= info.retry_at_ms - began_ms - wait_s * 1_000 <= took_ms
