"""A FastStream application whose subscribers are node types, as a team might write one."""

import asyncio
from typing import Annotated, Any

from faststream import BaseMiddleware, Depends
from faststream.exceptions import NackMessage, RejectMessage
from faststream.nats import NatsBroker
from pydantic import BaseModel, Field

from hocket.worker.faststream import StepConfig, StepContext, hocket_step

SEEN: list[str] = []
STARTED = asyncio.Event()


class Lead(BaseModel):
    email: str
    score: int = Field(0, ge=0)


class Contact(BaseModel):
    name: str
    region: str


class Noted(BaseMiddleware):
    """Records what passes through."""

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        SEEN.append(msg.message_id)
        return await call_next(msg)


async def directory() -> dict[str, str]:
    return {"ada@x.org": "Ada"}


Directory = Annotated[dict[str, str], Depends(directory)]


def broker_of(url: str = "nats://127.0.0.1:4222") -> NatsBroker:
    """Return a broker with the node types of this module."""
    broker = NatsBroker(url, middlewares=[Noted], logger=None)

    @hocket_step(broker, "crm.lookup", version="2", concurrency=2, timeout_ms=2_000)
    async def lookup(
        lead: Lead, names: Directory, context: StepContext, config: StepConfig
    ) -> Contact:
        """Find the person behind a lead."""
        assert context.attempt_id
        return Contact(name=names.get(lead.email, "?"), region=config.get("region", "eu"))

    @hocket_step(broker, "crm.score")
    def score(email: str, score: int = 1) -> int:
        """Score a lead, in a thread."""
        return len(email) + score

    @hocket_step(broker, "crm.wait", concurrency=1)
    async def wait(given: dict[str, Any]) -> str:
        STARTED.set()
        await asyncio.sleep(given["s"])
        return "waited"

    @hocket_step(broker, "crm.refuse")
    async def refuse(given: dict[str, str]) -> None:
        raise {"nack": NackMessage, "reject": RejectMessage, "fault": ValueError}[given["how"]]

    @hocket_step(broker, "crm.durable")
    async def durable(given: Any, context: StepContext) -> list[int]:
        return [await context.step("count", lambda: len(SEEN)), context.step.attempt]

    return broker
