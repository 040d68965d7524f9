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
from hocket.admin.node_types.reads import show_type
from hocket.admin.requests.identity import Caller
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.administration.platform_parts import QueueChange, QueueDrain
from hocket.schemas.errors import ErrorClass, HocketError
from hocket.schemas.subjects import LANES, pool, pool_token, step_consumer

TIMEOUT_MS = 5_000.0


class QueueUnknown(HocketError):
    """No worker has ever taken steps of `{type}` from the queue `{queue}`. Check the queue's name, or
    start a worker that serves it; `hocket platform queues` lists the existing ones."""

    code = "queue_unknown"
    error_class = ErrorClass.INVALID


async def change(context: Context, caller: Caller, node_type: str, body: QueueChange) -> None:
    """Drain a queue, or resume it if `body` is not a QueueDrain, with an audit row. Raises
    NodeTypeUnknown, QueueUnknown if no worker ever took its steps, and BusUnavailable."""
    until = None
    if isinstance(body, QueueDrain):
        until = (datetime.now(UTC) + timedelta(seconds=body.for_s)).isoformat()
    done = "queues.resume" if until is None else "queues.drain"
    name = pool(node_type, body.queue)
    await record(context, caller, done, f"queue:{name}", after=body.model_dump(mode="json"))
    asked = {} if until is None else {"pause_until": until.replace("+00:00", "Z")}
    token = pool_token(name)
    there = await asyncio.gather(
        *(_pause(context, step_consumer(token, lane), asked) for lane in LANES)
    )
    if not all(there):
        show_type(context.node_types, node_type)  # raises NodeTypeUnknown
        raise QueueUnknown(type=node_type, queue=body.queue, field="queue")


async def _pause(context: Context, consumer: str, asked: dict[str, str]) -> bool:
    """Pause or resume a consumer, and tell whether it exists."""
    subject = f"CONSUMER.PAUSE.{subjects.STEPS}.{consumer}"
    error = (await context.bus.api(subject, asked, timeout_ms=TIMEOUT_MS)).get("error")
    if error is None:
        return True
    if error.get("code") == HTTPStatus.NOT_FOUND:
        return False
    raise BusUnavailable(reason=str(error.get("description")))
