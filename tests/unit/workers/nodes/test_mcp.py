"""The `mcp` node against servers of the official SDK, and what hostile ones cost."""

import asyncio
import gc
import json
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from types import SimpleNamespace
from typing import Annotated, Any, cast

import pytest
import uvicorn
from mcp import MCPError
from mcp.server.mcpserver import Context as ToolContext
from mcp.server.mcpserver import MCPServer
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import Field

from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas.errors import HocketError
from hocket.workers.mcp import server as server_module
from hocket.workers.mcp.errors import McpServerInvalid
from hocket.workers.mcp.servers import McpServers
from hocket.workers.nodes.mcp import McpNode

Ask = Callable[..., Awaitable[dict[str, Any]]]
LIMIT = 600_000


def node_of(entries: dict[str, Any]) -> tuple[McpServers, Ask]:
    servers = McpServers(entries, {"TOKEN": "s3cret"})
    node = McpNode(servers)

    async def ask(
        tool: str,
        *,
        server: str = "it",
        within_ms: float = 10_000,
        charge: Callable[[Decimal], None] | None = None,
        **arguments: Any,
    ) -> Any:
        context = SimpleNamespace(
            config={"server": server, "tool": tool, "arguments": arguments},
            input={"word": "lamp"},
            tenant="t",
            deadline_at_ms=now_ms() + within_ms,
            step=SimpleNamespace(run_id="r1", step="a[0]"),
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            charge=charge,
        )
        return await node(cast(Any, context))

    return servers, ask


# ---- a server of the SDK --------------------------------------------------------------------


def shop() -> MCPServer:
    server = MCPServer("shop")

    @server.tool()
    def find(word: str, count: int = 1) -> list[str]:
        """Find things."""
        return [f"{word} {number}" for number in range(count)]

    @server.tool()
    def meta(context: ToolContext) -> dict[str, Any]:
        """Tell what came with the call."""
        return {"meta": context.request_context.meta}

    @server.tool()
    def fails() -> str:
        raise ValueError("the shelf is empty")

    return server


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server.should_exit = True
        await serving


@pytest.fixture(params=["sessions", "stateless"])
async def ask_shop(request: pytest.FixtureRequest) -> AsyncIterator[Ask]:
    app = shop().streamable_http_app(stateless_http=request.param == "stateless")
    async with served(app) as url:
        servers, ask = node_of({"it": {"url": url, "private": True}})
        yield ask
        await servers.close()


async def test_a_tool_is_called_with_values_of_the_input(ask_shop: Ask) -> None:
    assert await ask_shop("find", word="{{ input.word }}", count=2) == {
        "text": "lamp 0\nlamp 1",
        "data": {"result": ["lamp 0", "lamp 1"]},
        "content": [],
    }
    many = await asyncio.gather(*(ask_shop("find", word=f"w{i}") for i in range(20)))
    assert [one["text"] for one in many] == [f"w{i} 0" for i in range(20)]


async def test_a_call_says_which_step_it_is_for(ask_shop: Ask) -> None:
    told = json.loads((await ask_shop("meta"))["text"])["meta"]
    assert told["hocket/idempotency-key"] == "r1:a[0]"
    assert told["traceparent"].startswith("00-aaaa")


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "error_class"),
    [
        ("fails", {}, "mcp_tool_failed", "permanent"),
        ("nothing", {}, "mcp_tool_unknown", "invalid"),
        ("find", {"word": 3}, "invalid_input", "invalid"),
        ("find", {}, "invalid_input", "invalid"),
    ],
)
async def test_what_goes_wrong_is_a_typed_error(
    ask_shop: Ask, tool: str, arguments: dict[str, Any], code: str, error_class: str
) -> None:
    with pytest.raises(HocketError) as raised:
        await ask_shop(tool, **arguments)
    info = raised.value.info()
    assert (info.code, info.error_class) == (code, error_class)


@pytest.mark.parametrize("error_code", [INVALID_PARAMS, INTERNAL_ERROR])
async def test_an_error_that_names_a_session_is_no_lost_session(error_code: int) -> None:
    server = MCPServer("browser")

    @server.tool()
    def look(word: str) -> str:
        raise MCPError(error_code, f"there is no browser session `{word}`")

    async with served(server.streamable_http_app()) as url:
        servers, ask = node_of({"it": {"url": url, "private": True}})
        with pytest.raises(HocketError) as raised:
            await ask("look", word="a")
        await servers.close()
    assert (raised.value.code, raised.value.retryable) == ("mcp_refused", False)


async def test_a_server_says_what_its_tools_take() -> None:
    server = MCPServer("talkative")

    @server.tool(description="x" * 20_000)
    def find(word: str) -> str:
        return word

    @server.tool()
    def flood(word: Annotated[str, Field(description="x" * 70_000)]) -> str:
        return word

    async with served(server.streamable_http_app()) as url:
        entry = {"url": url, "private": True, "tenants": ["acme"]}
        servers = McpServers({"it": entry}, {})
        said = await servers.described("it", "find", "acme", timeout_ms=10_000)
        assert said["description"] == "x" * 10_000
        assert said["parameters"]["properties"]["word"]["type"] == "string"
        codes = []
        for tool, tenant in (("flood", "acme"), ("nothing", "acme"), ("find", "other")):
            with pytest.raises(HocketError) as raised:
                await servers.described("it", tool, tenant, timeout_ms=10_000)
            codes.append(raised.value.info().code)
        await servers.close()
    assert codes == ["mcp_answer_invalid", "mcp_tool_unknown", "mcp_server_unknown"]


# ---- a hostile one --------------------------------------------------------------------------


class Hostile:
    """Speaks the protocol by hand; each tool does what its name says."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.schemas: dict[str, Any] = {}
        """The schemas of the tool `good` that it describes, if any."""
        self.gone = asyncio.Event()
        """Set when a connection that had a tool's call was closed on it."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].partition("\r")[0] or 0)
                body = await reader.readexactly(length)
                request = json.loads(body) if body else {}
                self.requests.append({"head": head} | request)
                await self.answer(request, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def answer(self, request: Any, reader: Any, writer: Any) -> None:
        method, number = request.get("method"), request.get("id")
        if method == "initialize":
            await self.result(writer, number, {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            })  # fmt: skip
        elif method == "tools/list":
            await self.result(writer, number, {"tools": [self.tool(name) for name in TOOLS]})
        elif method == "tools/call":
            await TOOLS[request["params"]["name"]](self, number, reader, writer)
        elif number is None or method is None:
            await self.send(writer, b"", "202 Accepted")
        else:
            error = {"code": -32601, "message": "unknown"}
            await self.send(
                writer, json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode()
            )

    def tool(self, name: str) -> dict[str, Any]:
        described: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
        if name == "good":
            described |= self.schemas
        if name == "lies":
            described["outputSchema"] = {"type": "object", "required": ["total"]}
        if name == "catastrophe":  # takes ages to match, where patterns backtrack
            pattern = {"type": "string", "pattern": "^(a+)+$"}
            described["outputSchema"] = {"type": "object", "properties": {"x": pattern}}
        if name == "nonsense":
            described["inputSchema"] = described["outputSchema"] = {
                "type": "object",
                "$ref": "#/nowhere",
            }
        return described

    async def result(self, writer: Any, number: Any, result: Any) -> None:
        await self.send(
            writer, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
        )

    async def send(self, writer: Any, body: bytes, status: str = "200 OK", *headers: str) -> None:
        kind = "Content-Type: application/json"
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", kind, *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


async def good(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    await it.result(writer, number, text("fine"))


async def hangs(it: Hostile, _number: Any, reader: Any, _writer: Any) -> None:
    await reader.read(1)
    it.gone.set()


async def trickles(it: Hostile, _number: Any, reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n")
    await hangs(it, None, reader, writer)


async def huge(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n"
    )
    for _ in range(100):
        writer.write(b'"' * 1024 * 1024)
        await writer.drain()


def event(message: dict[str, Any]) -> bytes:
    return f"event: message\ndata: {json.dumps({'jsonrpc': '2.0'} | message)}\n\n".encode()


async def floods(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    told = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
    while True:
        writer.write(event(told) * 100)
        await writer.drain()


async def asks(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    for question in range(500):
        writer.write(event({"id": question, "method": "ping"}))
    writer.write(event({"id": number, "result": text("asked")}))
    await writer.drain()


async def streamed(writer: Any, *parts: bytes, charset: str = "utf-8") -> None:
    kind = f"Content-Type: text/event-stream; charset={charset}"
    writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n".encode())
    for part in parts:
        writer.write(part)
        await writer.drain()


async def in_pieces(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    whole = event({"id": number, "result": text("pieces")}).replace(b"\n", b"\r\n")
    await streamed(writer, b": hello\r\n\r", b"\n", *(whole[i : i + 1] for i in range(len(whole))))


async def crowd(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    head = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[],' % number
    await streamed(writer, head, b'"structuredContent":{"x":[0', b",0" * 250_000, b"]}}}\n\n")


async def deep_event(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    nested = b"[" * 150 + b"]" * 150
    result = b'"result":{"content":[],"structuredContent":{"x":' + nested + b"}}}"
    await streamed(writer, b'data: {"jsonrpc":"2.0","id":%d,' % number + result + b"\n\n")


async def other_charset(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    told = event({"id": number, "result": text("in UTF-16")}).decode()
    await streamed(writer, told.encode("utf-16-le"), charset="utf-16-le")


async def one_line(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
    for _ in range(100):
        writer.write(b"a" * 1024 * 1024)
        await writer.drain()


async def lies(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    await it.result(writer, number, text("") | {"structuredContent": {"sum": 3}})


async def catastrophe(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    await it.result(writer, number, text("") | {"structuredContent": {"x": "a" * 5_000 + "!"}})


async def nonsense(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    await it.result(writer, number, text("") | {"structuredContent": {}})


async def deep(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    nested = b'{"jsonrpc":"2.0","id":%d,"result":' % number + b"[" * 50_000 + b"]" * 50_000 + b"}"
    await it.send(writer, nested)


async def garbage(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    await it.send(writer, b"<html>no</html>")


async def someone_elses(it: Hostile, _number: Any, reader: Any, writer: Any) -> None:
    await it.result(writer, 4711, text("not yours"))


async def drops(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    writer.transport.abort()


async def redirects(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    await it.send(writer, b"", "307 Temporary Redirect", "Location: http://169.254.169.254/")


async def refuses(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    await it.send(writer, b"", "401 Unauthorized")


async def busy(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    await it.send(writer, b"", "429 Too Many Requests")


async def breaks(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    writer.write(
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\nContent-Type: text/html\r\n\r\nbad"
    )
    await writer.drain()


async def zipped(it: Hostile, _number: Any, _reader: Any, writer: Any) -> None:
    await it.send(writer, b"\x1f\x8b" + b"0" * 100, "200 OK", "Content-Encoding: gzip")


async def wrong_shape(it: Hostile, number: Any, _reader: Any, writer: Any) -> None:
    await it.result(writer, number, {"content": "no list"})


FAULTS: dict[Any, tuple[str, str]] = {
    hangs: ("mcp_timeout", "timeout"),
    trickles: ("mcp_timeout", "timeout"),
    huge: ("mcp_answer_too_large", "invalid"),
    floods: ("mcp_answer_too_large", "invalid"),
    one_line: ("mcp_answer_too_large", "invalid"),
    lies: ("mcp_answer_invalid", "invalid"),
    catastrophe: ("mcp_answer_invalid", "invalid"),
    nonsense: ("mcp_answer_invalid", "invalid"),
    deep: ("mcp_answer_invalid", "invalid"),
    crowd: ("mcp_answer_invalid", "invalid"),
    deep_event: ("mcp_answer_invalid", "invalid"),
    other_charset: ("mcp_timeout", "timeout"),
    garbage: ("mcp_answer_invalid", "invalid"),
    someone_elses: ("mcp_timeout", "timeout"),
    drops: ("mcp_unreachable", "unavailable"),
    redirects: ("mcp_refused", "invalid"),
    refuses: ("mcp_not_authorized", "permanent"),
    busy: ("mcp_rate_limited", "rate_limited"),
    breaks: ("mcp_failed", "transient"),
    zipped: ("mcp_answer_invalid", "invalid"),
    wrong_shape: ("mcp_answer_invalid", "invalid"),
}
TOOLS = {one.__name__: one for one in (good, asks, in_pieces, *FAULTS)}


@pytest.fixture
async def hostile() -> AsyncIterator[tuple[Hostile, Ask]]:
    it = Hostile()
    listening = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    entry = {
        "url": url,
        "private": True,
        "max_bytes": LIMIT,
        "headers": {"authorization": "Bearer os.environ/TOKEN"},
    }
    few = entry | {"tools": ["good"], "tenants": ["t"]}
    dear = entry | {"request_usd": "0.25"}
    others = entry | {"tenants": ["x"]}
    servers, ask = node_of({"it": entry, "few": few, "others": others, "dear": dear})
    yield it, ask
    await servers.close()
    listening.close()
    gc.collect()


@pytest.mark.parametrize("tool", FAULTS, ids=lambda tool: tool.__name__)
async def test_a_hostile_tool_costs_its_step_an_error_in_time_and_nobody_else(
    hostile: tuple[Hostile, Ask], tool: Any
) -> None:
    _, ask = hostile
    await ask("good")
    code, error_class = FAULTS[tool]
    within_ms = 700.0 if code == "mcp_timeout" else 20_000.0
    asked = asyncio.create_task(ask(tool.__name__, within_ms=within_ms))
    others = [asyncio.create_task(ask("good")) for _ in range(5)]
    began_ms = monotonic_ms()
    with pytest.raises(HocketError) as raised:
        await asked
    assert monotonic_ms() - began_ms < within_ms + 5_000
    info = raised.value.info()
    assert (info.code, info.error_class) == (code, error_class), info.message
    assert info.component == "mcp:it"
    assert [one["text"] for one in await asyncio.gather(*others)] == ["fine"] * 5
    assert (await ask("good"))["text"] == "fine"


async def test_a_hundred_hostile_answers_take_no_memory(hostile: tuple[Hostile, Ask]) -> None:
    _, ask = hostile
    await ask("good")
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    calls = [ask(name) for name in ("huge", "one_line", "floods") for _ in range(8)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert {error.info().code for error in ended if isinstance(error, HocketError)} == {
        "mcp_answer_too_large"
    }
    assert len(ended) == 24
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) / 1024
    assert grown_mib < 100  # 24 answers of 100 MiB each, the sender being in this process, too


async def test_a_server_gets_no_answers_to_its_questions(hostile: tuple[Hostile, Ask]) -> None:
    it, ask = hostile
    assert (await ask("asks"))["text"] == "asked"
    assert not [one for one in it.requests if "method" not in one and "id" in one]


@pytest.mark.parametrize(
    ("tool", "charged"),
    [
        (good, True),
        (lies, True),
        (huge, True),
        (refuses, True),
        (wrong_shape, True),
        (drops, False),
        (hangs, False),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_a_call_that_is_answered_costs_its_price_once(
    hostile: tuple[Hostile, Ask], tool: Any, charged: bool
) -> None:
    _, ask = hostile
    await ask("good")
    charges: list[Decimal] = []
    within_ms = 700.0 if tool is hangs else 20_000.0
    with suppress(HocketError):
        await ask(tool.__name__, server="dear", within_ms=within_ms, charge=charges.append)
    assert charges == ([Decimal("0.25")] if charged else [])


async def test_a_tool_whose_schemas_the_server_changed_is_called_by_the_new_ones(
    hostile: tuple[Hostile, Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, ask = hostile
    monkeypatch.setattr(server_module, "LISTED_AGAIN_MS", -1.0)
    it.schemas = {
        "inputSchema": {"type": "object", "properties": {"word": {"type": "integer"}}},
        "outputSchema": {"type": "object", "required": ["gone"]},
    }
    with pytest.raises(HocketError, match=r"`arguments\.word` is not valid"):
        await ask("good", word="lamp")
    with pytest.raises(HocketError, match="does not match the tool's output schema"):
        await ask("good", word=1)
    it.schemas = {}
    assert (await ask("good", word="lamp"))["text"] == "fine"
    it.schemas = {"outputSchema": {"type": "object", "required": ["gone"]}}
    with pytest.raises(HocketError, match="does not match the tool's output schema"):
        await ask("lies", word=1)
    it.schemas = {}
    assert (await ask("good", word=1))["text"] == "fine"


async def test_ever_new_schemas_take_no_memory(
    hostile: tuple[Hostile, Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, ask = hostile
    monkeypatch.setattr(server_module, "LISTED_AGAIN_MS", -1.0)
    kept = server_module._compiled.cache_info().currsize
    for number in range(3):
        told = f"{number}" * 100_000
        it.schemas = {"outputSchema": {"type": "object", "required": ["x"], "description": told}}
        with pytest.raises(HocketError, match="does not match the tool's output schema"):
            await ask("good")
    assert server_module._compiled.cache_info().currsize <= kept + 1  # the small one of arguments


async def test_an_event_may_arrive_in_any_pieces(hostile: tuple[Hostile, Ask]) -> None:
    _, ask = hostile
    assert (await ask("in_pieces"))["text"] == "pieces"


async def test_a_call_that_is_over_leaves_no_connection_behind(
    hostile: tuple[Hostile, Ask],
) -> None:
    it, ask = hostile
    with pytest.raises(HocketError):
        await ask("hangs", within_ms=300)
    async with asyncio.timeout(10):
        await it.gone.wait()


async def test_secrets_and_tenants_are_the_configurations(hostile: tuple[Hostile, Ask]) -> None:
    it, ask = hostile
    await ask("good", server="few")
    assert "authorization: bearer s3cret" in it.requests[-1]["head"]
    with pytest.raises(HocketError, match="it may not be called; available tools: good"):
        await ask("lies", server="few")
    with pytest.raises(HocketError, match="There is no MCP server `others`"):
        await ask("good", server="others")
    with pytest.raises(McpServerInvalid, match=r"169.254.169.254 is a private address"):
        McpServers({"a": "http://169.254.169.254/mcp"}, {})
    with pytest.raises(McpServerInvalid, match="`ulr`"):
        McpServers({"a": {"url": "https://a.example", "ulr": "x"}}, {})


async def test_a_server_that_is_not_there_is_asked_again_later() -> None:
    it = Hostile()
    listening = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    servers, ask = node_of({"it": {"url": f"http://127.0.0.1:{port}/mcp", "private": True}})
    with pytest.raises(HocketError) as raised:
        await ask("good")
    assert raised.value.info().code == "mcp_unreachable"
    listening = await asyncio.start_server(it.serve, "127.0.0.1", port)
    assert (await ask("good"))["text"] == "fine"
    await servers.close()
    listening.close()
