"""What a worker may ask for its consumers, and that each question is answered, whatever it is."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from hocket.kit.nats.consumers.step_consumers import StepConsumersDoor


@dataclass
class Asked:
    """A question of a worker."""

    data: bytes
    subject: str = "hocket.worker.consumers.crm-lookup"
    reply: str = "_INBOX.x"


class Subscription:
    async def unsubscribe(self) -> None:
        return


@dataclass
class Bus:
    """Hands questions to the door, and keeps its answers. Nothing valid is asked of it."""

    answers: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    ask: Callable[[Asked], Awaitable[None]] | None = None

    async def subscribe(self, _subject: str, callback: Any, *, queue: str) -> Subscription:
        assert queue
        self.ask = callback
        return Subscription()

    def respond(self, _reply: str, body: bytes) -> None:
        self.answers.put_nowait(body)


@pytest.mark.parametrize(
    "body",
    [b"[" * 200_000, b"\xff", b"{", b'{"ack_wait_s": NaN}', b'{"ack_wait_s": 0}', b"[]", b"1e999"],
)
async def test_a_question_that_cannot_be_read_is_answered_with_the_reason(body: bytes) -> None:
    bus = Bus()
    async with StepConsumersDoor(bus).open():  # type: ignore[arg-type]
        assert bus.ask is not None
        await bus.ask(Asked(body))
        answer = await asyncio.wait_for(bus.answers.get(), 10)
    assert answer.startswith(b"-ERR ")
