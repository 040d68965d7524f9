"""Drains step queues of node types: their consumers deliver nothing until a given time, and steps wait
in them.

NATS stores the pause itself, so it survives restarts of all our processes, and ends it on time. Steps
already delivered to workers continue.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from hocket.admin.audit.recording import record
from hocket.admin.context import Context
from hocket.admin.node_types.reads import NodeTypeUnknown
from hocket.admin.requests.identity import Caller
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.administration.platform_parts import QueueChange, QueueDrain
from hocket.schemas.subjects import LANES, pool, pool_token, step_consumer

TIMEOUT_MS = 5_000.0


async def change(context: Context, caller: Caller, node_type: str, body: QueueChange) -> None:
    """Drain a queue, or resume it if `body` is not a QueueDrain, with an audit row. Raises
    NodeTypeUnknown if no worker ever took its steps, and BusUnavailable."""
    until = None
    if isinstance(body, QueueDrain):
        until = (datetime.now(UTC) + timedelta(seconds=body.for_s)).isoformat()
    done = "queues.resume" if until is None else "queues.drain"
    name = pool(node_type, body.queue)
    await record(context, caller, done, f"queue:{name}", after=body.model_dump(mode="json"))
    asked = {} if until is None else {"pause_until": until.replace("+00:00", "Z")}
    token = pool_token(name)
    await asyncio.gather(
        *(_pause(context, step_consumer(token, lane), asked, node_type) for lane in LANES)
    )


async def _pause(context: Context, consumer: str, asked: dict[str, str], node_type: str) -> None:
    subject = f"CONSUMER.PAUSE.{subjects.STEPS}.{consumer}"
    error = (await context.bus.api(subject, asked, timeout_ms=TIMEOUT_MS)).get("error")
    if error is None:
        return
    if error.get("code") == HTTPStatus.NOT_FOUND:
        raise NodeTypeUnknown(type=node_type)
    raise BusUnavailable(reason=str(error.get("description")))
