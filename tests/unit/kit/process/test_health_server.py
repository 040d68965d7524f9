"""Health and metrics: no caller makes them dear, keeps others out, or asks under a foreign name."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvloop

from hocket.kit.process import health_server
from hocket.kit.process.health_server import HealthServer
from support.shared.ipv6 import needs_ipv6

WAIT_S = 20
READY = Path(__file__).parents[4] / "deploy" / "image" / "ready.py"
"""The health check of the image."""


@pytest.fixture
def made() -> list[str]:
    return []


@contextmanager
def _serving(made: list[str], host: str = "127.0.0.1") -> Iterator[int]:
    def page() -> tuple[int, str, bytes]:
        made.append("made")
        return 200, "text/plain", b"fine"

    server = HealthServer(host, 0, {"/metrics": page})
    server.start()
    try:
        yield urlsplit(server.url).port or 0
    finally:
        server.close()


@pytest.fixture
async def port(made: list[str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(health_server, "ACCEPT_EVERY_S", 0.001)
    with _serving(made) as port:
        yield port


async def _ask(port: int, said: bytes) -> bytes:
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        try:
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def _get(path: str = "/metrics", host: str = "127.0.0.1:1", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (_get(), 200, b"fine"),
        (_get("/metrics?x=1"), 200, b"fine"),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200, b"fine"),
        (_get(method="HEAD"), 200, b""),
        (_get("/nothing"), 404, None),
        (_get(method="POST"), 405, None),
        (_get(host="evil.example"), 421, None),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 421, None),
        (_get(host="127.0.0.1\r\nHost: evil.example"), 421, None),
        (b"\r\n\r\n", 405, None),
        (b"GET\r\n\r\n", 404, None),
        (b"\xff" * 20 + b"\r\n\r\n", 405, None),
        (b"GET /" + b"x" * 10_000, 431, None),
    ],
)
async def test_one_request_is_answered(
    port: int, said: bytes, status: int, body: bytes | None
) -> None:
    heard = await _ask(port, said)
    head, _, told = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in head
    if body is not None:
        assert told == body


async def test_what_is_asked_ahead_is_not_answered(port: int) -> None:
    heard = await _ask(port, _get() * 100)
    assert heard.count(b"HTTP/1.1") == 1


async def test_an_answer_is_made_once_for_many(port: int, made: list[str]) -> None:
    await asyncio.gather(*(_ask(port, _get()) for _ in range(50)))
    assert len(made) < 10


async def test_callers_who_say_nothing_keep_nobody_out(port: int) -> None:
    silent = [
        await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2 * health_server.MAX_CONNECTIONS)
    ]
    try:
        assert (await _ask(port, _get())).startswith(b"HTTP/1.1 200")
    finally:
        for _, writer in silent:
            writer.close()


async def test_a_caller_who_says_nothing_is_not_waited_for(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "LIFE_S", 0.05)
    assert await _ask(port, b"GET /met") == b""


async def test_connections_are_let_in_at_a_pace(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "ACCEPTED_AT_ONCE", 2)
    monkeypatch.setattr(health_server, "ACCEPT_EVERY_S", 3_600)
    with _serving(made) as port:
        answers = [asyncio.create_task(_ask(port, _get())) for _ in range(5)]
        done, waiting = await asyncio.wait(answers, timeout=0.5)
        for task in waiting:
            task.cancel()
    assert len(done) == 2


async def test_a_server_for_others_is_asked_by_any_name(made: list[str]) -> None:
    with _serving(made, "0.0.0.0") as port:
        heard = await _ask(port, _get(host="hocket-gateway.svc:9090"))
    assert heard.startswith(b"HTTP/1.1 200")


def test_it_serves_on_the_loop_of_processes(made: list[str]) -> None:
    async def ask() -> bytes:
        with _serving(made) as port:
            return await _ask(port, _get())

    assert uvloop.run(ask()).endswith(b"fine")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "0.0.0.0", "127.0.0.2", "localhost"]
    + [pytest.param(host, marks=needs_ipv6) for host in ("::1", "::")],
)
async def test_the_health_check_of_the_image_asks_where_the_process_listens(host: str) -> None:
    server = HealthServer(host, 0, {"/readyz": lambda: (200, "text/plain", b"ready")})
    server.start()
    try:
        port = str(urlsplit(server.url).port)
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-IS", READY),
            env={**os.environ, "HOCKET_HEALTH_HOST": host, "HOCKET_HEALTH_PORT": port},
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(WAIT_S):
            said, _ = await asking.communicate()
    finally:
        server.close()
    assert (asking.returncode, said) == (0, b"ready")
