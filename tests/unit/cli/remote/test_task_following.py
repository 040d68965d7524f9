"""A task is sent if the server takes it. The API is asked for the end of its run until it tells it,
whatever it answers in between."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from hocket.cli.remote import task
from hocket.cli.terminal.errors import ApiRefused
from hocket.schemas.errors import ErrorInfo, PayloadTooLarge

WAIT_S = 20


async def test_an_api_that_refuses_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "LOOK_INTERVAL_S", 0.0)
    refusals = [ApiRefused(ErrorInfo(code="too_many_requests", message="Later."))]

    def look() -> dict[str, Any] | None:
        if refusals:
            raise refusals.pop()
        return {"status": "succeeded"}

    end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(WAIT_S):
        await task._keep_looking(look, end)

    assert await end == {"status": "succeeded"}


class Server:
    """A connection to a server that takes messages of at most so many bytes."""

    def __init__(self, max_payload: int) -> None:
        self.max_payload = max_payload
        self.servers = ["nats://a"]
        self.sent: list[int] = []

    def jetstream(self) -> Any:
        return SimpleNamespace(publish=self._publish)

    async def _publish(self, _subject: str, payload: bytes, *, headers: Any, **_: Any) -> None:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.sent.append(len(payload) + len(f"NATS/1.0\r\n{head}\r\n"))


async def test_a_task_is_as_large_as_the_server_takes() -> None:
    """How large it may be for the platform is a setting of that."""
    sent = task.Task(tenant="default", pipeline="p", input={"text": "x" * 2_000_000}, key="k")
    server = Server(8_000_000)
    await task._publish(server, "nats://a", sent, {})  # type: ignore[arg-type]
    assert server.sent[0] > 2_000_000

    await task._publish(Server(server.sent[0]), "nats://a", sent, {})  # type: ignore[arg-type]
    small = Server(server.sent[0] - 1)
    with pytest.raises(PayloadTooLarge, match=r"has 2000011 bytes; the limit is 2000010\."):
        await task._publish(small, "nats://a", sent, {})  # type: ignore[arg-type]
    assert not small.sent
