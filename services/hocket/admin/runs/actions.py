"""Requests that change a run: each is one message in the log of the run's partition."""

from uuid import uuid4

import asyncpg

from hocket.admin.context import Context
from hocket.admin.requests.errors import RunNotOpen
from hocket.admin.requests.identity import Caller
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL
from hocket.schemas.messages import CancelRequested, SignalReceived
from hocket.schemas.rest import CancelBody, Sent, SignalBody

PUBLISH_TIMEOUT_MS = 10_000


async def cancel(context: Context, caller: Caller, run: asyncpg.Record, body: CancelBody) -> Sent:
    """Ask the run's coordinator to end it; raises RunNotOpen where it has ended."""
    event = CancelRequested(run_id=run["run_id"], reason=body.reason, by=caller.name)
    return await _send(context, run, event, msg_id=f"{run['run_id']}:cancel:{uuid4().hex}")


async def signal(context: Context, caller: Caller, run: asyncpg.Record, body: SignalBody) -> Sent:
    """Hand an event to the run; raises RunNotOpen where it has ended."""
    signal_id = body.signal_id or uuid4().hex
    event = SignalReceived(
        run_id=run["run_id"],
        signal_id=signal_id,
        name=body.name,
        payload=body.payload,
        by=caller.name,
    )
    return await _send(context, run, event, msg_id=f"{run['run_id']}:signal:{signal_id}")


async def _send(
    context: Context, run: asyncpg.Record, event: CancelRequested | SignalReceived, *, msg_id: str
) -> Sent:
    if run["finished_at"] is not None:
        raise RunNotOpen(run_id=run["run_id"], status=run["status"])
    body, seals = event.model_dump_json().encode(), context.capabilities
    ack = await context.bus.publish(
        subjects.log(run["partition"], event.kind),
        body,
        msg_id=msg_id if seals is None else seals.id_of(msg_id),
        headers=None if seals is None else {SEAL: seals.seal(event.kind, body)},
        timeout_ms=PUBLISH_TIMEOUT_MS,
    )
    return Sent(run_id=run["run_id"], log_seq=ack.seq)
