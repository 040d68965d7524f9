"""The `http` node against a real server: what each answer becomes, and what a hostile one costs."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hocket.kit.process.clock import now_ms
from hocket.schemas.errors import HocketError
from hocket.workers.http.services import Services
from hocket.workers.nodes.http import HttpNode

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
Ask = Callable[..., Awaitable[dict[str, Any]]]


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


JSON = "Content-Type: application/json; charset=utf-8"


class Server:
    """Answers each request with what a test hands it, and keeps the requests."""

    def __init__(self) -> None:
        self.says: bytes | Answer = answer("204 No Content")
        self.heard: list[bytes] = []
        self.charged: list[Decimal] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard.append(head)
        try:
            if callable(self.says):
                await self.says(head, writer)
            else:
                writer.write(self.says)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, Ask]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    entry = {"url": f"http://127.0.0.1:{port}", "private": True, "max_bytes": 100_000}
    entries = {
        "it": entry,
        "named": {"url": f"http://localhost:{port}"},
        "priced": entry | {"request_usd": "0.02"},
        "closed": entry | {"url": "http://127.0.0.1:1", "request_usd": "0.02"},
    }
    services = Services(entries, {})
    node = HttpNode(services)

    charged: list[Decimal] = []
    server.charged = charged

    async def ask(*, within_ms: float = 5_000, service: str = "it", **config: Any) -> Any:
        step = SimpleNamespace(run_id="r1", step="a[0]~b")
        context = SimpleNamespace(
            config={"service": service, **config},
            input={},
            tenant="t",
            deadline_at_ms=now_ms() + within_ms,
            step=step,
            charge=charged.append,
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        )
        return await node(cast(Any, context))

    yield server, ask
    await services.close()
    listening.close()


async def test_json_is_a_value_and_the_request_says_which_step_it_is_for(
    server: tuple[Server, Ask],
) -> None:
    it, ask = server
    it.says = answer("200 OK", b'{"a": [1, null]}', JSON, "ETag: x", "X-Secret: y")
    assert await ask(path="/a") == {
        "status": 200,
        "headers": {"content-type": "application/json; charset=utf-8", "etag": "x"},
        "body": {"a": [1, None]},
    }
    head = it.heard[0].decode().lower()
    assert head.startswith("get /a http/1.1\r\n")
    assert "idempotency-key: r1:a[0]~b\r\n" in head
    assert "traceparent: 00-aaaa" in head


@pytest.mark.parametrize(
    ("says", "body"),
    [
        (answer("200 OK", "grün".encode(), "Content-Type: text/plain"), "grün"),
        (answer("200 OK", "grün".encode("latin-1"), "Content-Type: text/csv; charset=latin-1"), "grün"),
        (answer("200 OK", b"a", "Content-Type: text/plain; charset=banana"), "a"),
        (answer("200 OK", b"a\\ud800", "Content-Type: text/plain; charset=unicode_escape"), "a\\ud800"),
        (answer("200 OK", b"a\xff", "Content-Type: text/plain; charset=idna"), "a\ufffd"),
        (answer("200 OK", b"a", "Content-Type: text/plain; charset=undefined"), "a"),
        (answer("200 OK", "яы".encode("cp1251"), "Content-Type: text/csv; charset=windows-1251"), "яы"),
        (answer("200 OK", b"<a/>", "Content-Type: image/svg+xml"), "<a/>"),
        (answer("200 OK", b'{"a": 1}', "Content-Type: application/json;charset*"), {"a": 1}),
        (answer("200 OK", b"a", 'Content-Type: text/plain; charset="'), "a"),
        (answer("200 OK", b"a\xff", "Content-Type: text/plain; charset*=utf-8''cp1252"), "a\u00ff"),
        (answer("200 OK", b"a", "Content-Type: Text/Plain;charset*"), "a"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20 + answer("200 OK", b"a", "Content-Type: text/a"), "a"),
        (answer("204 No Content"), None),
    ],
)  # fmt: skip
async def test_text_is_text(server: tuple[Server, Ask], says: bytes, body: Any) -> None:
    it, ask = server
    it.says = says
    assert (await ask())["body"] == body


async def test_no_encoding_takes_long(server: tuple[Server, Ask]) -> None:
    """Punycode takes the square of the length: minutes in which the worker would do nothing else."""
    it, ask = server
    text = b"ab9c" * 24_000
    it.says = answer("200 OK", text, "Content-Type: text/plain; charset=punycode")
    assert (await ask())["body"] == text.decode()


async def test_an_accepted_status_is_an_output(server: tuple[Server, Ask]) -> None:
    it, ask = server
    it.says = answer("404 Not Found", b'{"why": 1}', JSON)
    assert await ask(accept=[404]) | {"headers": 0} == {
        "status": 404, "headers": 0, "body": {"why": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        ("400 Bad Request", "http_rejected", False),
        ("404 Not Found", "http_rejected", False),
        ("401 Unauthorized", "http_not_authorized", False),
        ("302 Found", "http_redirected", False),
        ("408 Request Timeout", "http_failed", True),
        ("429 Too Many Requests", "http_rate_limited", True),
        ("500 Internal Server Error", "http_failed", True),
        ("503 Service Unavailable", "http_failed", True),
    ],
)
async def test_a_status_is_an_error_of_its_class(
    server: tuple[Server, Ask], status: str, code: str, retryable: bool
) -> None:
    it, ask = server
    it.says = answer(status, b"", "Retry-After: 2", "Location: http://127.0.0.1:1/")
    with pytest.raises(HocketError) as failed:
        await ask()
    info = failed.value.info()
    assert (info.code, info.retryable, info.component) == (code, retryable, "http:it")
    if status[:3] in ("429", "503"):
        assert info.retry_at_ms is not None
        assert 0 < info.retry_at_ms - now_ms() <= 2_000
    assert len(it.heard) == 1


async def _floods(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for _ in range(10_000):
        writer.write(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
        await writer.drain()


async def _endless_headers(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in range(200_000):
        writer.write(b"X-%d: %s\r\n" % (number, b"y" * 1_000))
        await writer.drain()


async def _says_nothing(head: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def _drips(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(1_000):
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _endless_interim(head: bytes, writer: asyncio.StreamWriter) -> None:
    for _ in range(200_000):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 30)
        await writer.drain()


async def _hangs_up(head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nxyz")


ZIPPED = gzip.compress(b"x" * 10_000_000)
DEEP = b"[" * 50_000 + b"]" * 50_000


@pytest.mark.parametrize(
    ("says", "code"),
    [
        (_floods, "http_answer_too_large"),
        (_says_nothing, "http_timeout"),
        (_drips, "http_timeout"),
        (_hangs_up, "http_unreachable"),
        (_endless_headers, "http_unreachable"),
        (_endless_interim, "http_unreachable"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "http_unreachable"),
        (answer("200 OK", ZIPPED, "Content-Encoding: gzip"), "http_answer_unreadable"),
        (answer("200 OK", b"\x89PNG", "Content-Type: image/png"), "http_answer_unreadable"),
        (answer("200 OK", b"{nope", JSON), "http_answer_unreadable"),
        (answer("200 OK", DEEP[1_000:-1_000], JSON), "http_answer_unreadable"),
        (answer("200 OK", b"9" * 90_000, JSON), "http_answer_unreadable"),
        (answer("200 OK", b'{"a": NaN}', JSON), "http_answer_unreadable"),
    ],
)  # fmt: skip
async def test_a_hostile_answer_costs_its_step_an_error(
    server: tuple[Server, Ask], says: Any, code: str
) -> None:
    it, ask = server
    it.says = says
    with pytest.raises(HocketError) as failed:
        await ask(within_ms=300 if code == "http_timeout" else 5_000)
    assert failed.value.code == code
    it.says = answer("200 OK", json.dumps("fine").encode(), JSON)
    assert (await ask())["body"] == "fine"


async def test_a_name_that_is_at_a_private_address_is_not_asked(
    server: tuple[Server, Ask],
) -> None:
    it, ask = server
    with pytest.raises(HocketError) as refused:
        await ask(service="named")
    assert (refused.value.code, it.heard) == ("http_address_refused", [])


async def test_a_request_with_a_price_is_charged_where_it_was_answered(
    server: tuple[Server, Ask],
) -> None:
    it, ask = server
    await ask(path="/")
    assert it.charged == []
    await ask(path="/", service="priced")
    it.says = answer("500 Internal Server Error")
    with pytest.raises(HocketError):
        await ask(path="/", service="priced")
    with pytest.raises(HocketError):
        await ask(path="/", service="closed")
    assert it.charged == [Decimal("0.02"), Decimal("0.02")]
