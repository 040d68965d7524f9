"""The consumers of events are created for many keys at once, and once for a key that asks often."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from hocket.admin.nats_access import event_readers
from hocket.admin.nats_access.event_readers import EventReaders
from hocket.schemas.access.keys import KeyRefused, Principal
from hocket.schemas.access.nats_table import EVENTS_ASKED, events_consumer
from hocket.schemas.access.roles import permissions_of


class Book:
    """Every key is a developer's, except for those of workers."""

    def holder(self, key_id: str) -> Principal:
        if key_id == "unknown":
            raise KeyRefused(reason="it is unknown")
        role = "worker" if key_id.startswith("w") else "developer"
        return Principal(key_id, key_id, "acme", role, permissions_of(role, None))


class Server:
    """Creates a consumer only when told to; keeps the answers to requests."""

    def __init__(self) -> None:
        self.js = self
        self.created: list[str] = []
        self.may_create = asyncio.Event()
        self.answers: dict[str, bytes] = {}
        self._heard: Callable[[Msg], Awaitable[None]] | None = None

    async def subscribe(self, _subject: str, heard: Any, *, queue: str) -> "Server":
        self._heard = heard
        return self

    async def unsubscribe(self) -> None:
        self._heard = None

    async def add_consumer(self, _stream: str, config: Any) -> None:
        self.created.append(config.name)
        await self.may_create.wait()

    def respond(self, reply: str, body: bytes) -> None:
        self.answers[reply] = body

    async def ask(self, key_id: str, reply: str) -> None:
        """Deliver a request, as the client does: one after the other."""
        assert self._heard is not None
        message = Msg(_client=None, subject=f"{EVENTS_ASKED}.{key_id}", reply=reply)  # type: ignore[arg-type]
        async with asyncio.timeout(1):
            await self._heard(message)
        await asyncio.sleep(0)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with EventReaders(server, Book()).open():  # type: ignore[arg-type]
        yield server


async def test_a_key_that_asks_often_delays_no_other_key(server: Server) -> None:
    for number in range(5):
        await server.ask("a", f"a{number}")
    await server.ask("b", "b0")
    assert server.created == [events_consumer("a"), events_consumer("b")]
    server.may_create.set()
    await asyncio.sleep(0.01)
    expected = {f"a{number}": events_consumer("a") for number in range(5)}
    expected["b0"] = events_consumer("b")
    assert server.answers == {reply: name.encode() for reply, name in expected.items()}
    await server.ask("a", "later")
    await asyncio.sleep(0.01)
    assert server.answers["later"] == events_consumer("a").encode()


async def test_requests_that_wait_are_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_readers, "MAX_ANSWERING", 2)
    monkeypatch.setattr(event_readers, "MAX_WAITING", 3)
    for key_id in ("a", "b", "c"):
        for number in range(5):
            await server.ask(key_id, f"{key_id}{number}")
    server.may_create.set()
    await asyncio.sleep(0.01)
    assert sorted(server.answers) == ["a2", "a3", "a4", "b2", "b3", "b4"]
    await server.ask("c", "c5")
    await asyncio.sleep(0.01)
    assert "c5" in server.answers


async def test_who_may_not_read_events_gets_no_consumer(server: Server) -> None:
    server.may_create.set()
    await server.ask("w", "w0")
    await server.ask("unknown", "u0")
    await asyncio.sleep(0.01)
    assert server.created == []
    assert list(server.answers) == ["u0"]
    assert server.answers["u0"].startswith(b"-ERR ")
