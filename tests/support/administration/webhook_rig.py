"""Receivers of webhooks that are real servers, and deliveries by a clock that the test sets."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry

from hocket.admin.context import Context
from hocket.admin.webhooks.delivery import Delivering
from hocket.admin.webhooks.sending import WebhookSender
from hocket.schemas import subjects
from hocket.schemas.messages import RunFinished
from support.rest_rig import Rest

WAIT_S = 30.0
MESSAGE = "msg_" + "0" * 24
"""The dead message among those that `add_webhook` writes."""
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Received:
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


@dataclass
class Receiver:
    """A server that stores what it receives, and answers with `answer`, by default with 204."""

    url: str = ""
    got: list[Received] = field(default_factory=list)
    answer: Answer | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.got.append(Received(headers, await request.text()))
        self.arrived.set()
        return web.Response(status=204) if self.answer is None else await self.answer(request)

    def answers(self, status: int, **headers: str) -> None:
        """Answer with this status from now on."""

        async def answer(_request: web.Request) -> web.Response:
            return web.Response(status=status, headers=headers)

        self.answer = answer


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """Run a receiver on its own port."""
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


@asynccontextmanager
async def delivering(rest: Rest) -> AsyncIterator[Delivering]:
    """Yield the sender of webhooks, which works only when the test asks it to."""
    context: Context = rest.app.state.context
    async with WebhookSender(context.webhook_private_hosts) as sender:
        yield Delivering(context, sender, CollectorRegistry())


async def send(one: Delivering) -> None:
    """Send what is due, and wait for the results."""
    while await one.look():
        pass
    await one.until_sent()


async def put(rest: Rest, name: str, url: str, **said: Any) -> dict[str, Any]:
    """Create a webhook and return it with its secret."""
    answer = await rest.ask("PUT", f"/v1/webhooks/{name}", json={"url": url, **said})
    assert answer.status in (200, 201), answer.body
    return dict(answer.body)


async def add_webhook(rest: Rest, name: str, *, text: str, run_id: str) -> None:
    """Create a webhook with a message in each state; `text` is inserted wherever others may write text.
    x"""
    await put(rest, name, "https://hooks.example.com/hocket", description=text[:1_000])
    rows = [
        ("dead", 7, 503, f"it answered 503. {text}"),
        ("delivered", 1, 204, ""),
        ("pending", 2, None, "it did not answer within 15 s"),
    ]
    body = json.dumps({"type": "run.failed", "data": {"run_id": run_id, "output": text}})
    for number, (state, attempts, status, error) in enumerate(rows):
        await rest.pool.execute(
            "INSERT INTO hocket.webhook_delivery (webhook_id, message_id, tenant, event, run_id, body,"
            " state, attempts, next_at, created_at, tried_at, last_status, last_error)"
            " SELECT webhook_id, $2, tenant, 'run.failed', $3, $4, $5, $6, now() + interval '1 hour',"
            " now() - make_interval(mins => $7), now(), $8, $9 FROM hocket.webhook WHERE name = $1",
            name,
            f"msg_{number:024}",
            run_id,
            body,
            state,
            attempts,
            10 * number,
            status,
            error,
        )


def ended(run_id: str, status: str = "failed", **said: Any) -> RunFinished:
    """Return the event that a run has ended."""
    told: dict[str, Any] = {
        "run_id": run_id,
        "tenant": "default",
        "pipeline": "report",
        "version": 1,
        "status": status,
        "accepted_at_ms": 1_774_742_400_000.0,
        "finished_at_ms": 1_774_742_401_000.0,
        "deadline_at_ms": 1_774_742_402_000.0,
    }
    return RunFinished.model_validate(told | said)


async def publish(rest: Rest, *ends: RunFinished) -> None:
    """Publish events on EVENTS."""
    for one in ends:
        subject = subjects.event(one.tenant, one.pipeline, one.kind)
        await rest.bus.publish(subject, one.model_dump_json().encode(), timeout_ms=5_000)


async def deliveries(rest: Rest, name: str, query: str = "") -> list[dict[str, Any]]:
    """Return the deliveries of a webhook, latest first."""
    return list((await rest.get(f"/v1/webhooks/{name}/deliveries{query}")).body["deliveries"])


async def until_waiting(rest: Rest, count: int) -> None:
    """Wait until `count` messages are written."""
    query = "SELECT count(*) FROM hocket.webhook_delivery"
    async with asyncio.timeout(WAIT_S):
        while await rest.pool.fetchval(query) < count:  # noqa: ASYNC110  # of the database
            await asyncio.sleep(0.01)
