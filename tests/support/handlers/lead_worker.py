"""A worker with its own node types, as a team might write one: run beside a platform, or in its own
process (`hocket-worker lead_worker:worker`)."""

import asyncio

from pydantic import BaseModel, Field

from hocket.worker import Context, Retryable, Worker

worker = Worker()


class Lead(BaseModel):
    email: str
    score: int = Field(0, ge=0)


class Contact(BaseModel):
    name: str
    region: str


class LookupConfig(BaseModel):
    region: str = "eu"


@worker.node("crm.lookup", version="2", concurrency=8, timeout_ms=2_000)
async def lookup(lead: Lead, config: LookupConfig, context: Context) -> Contact:
    """Find the person behind a lead.

    The rest is for the team."""
    assert context.attempt_id
    if lead.email == "later":
        raise Retryable("the directory is away")
    return Contact(name=lead.email.partition("@")[0], region=config.region)


@worker.node("crm.score", effects="external", usd_per_second="0.01")
def score(lead: Lead) -> int:
    """Score a lead, in a thread."""
    return lead.score + 1


@worker.node("crm.wait")
async def wait(seconds: float) -> str:
    """Wait for so long."""
    await asyncio.sleep(seconds)
    return "waited"
