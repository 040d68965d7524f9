"""Steps that no worker can finish: unreadable ones, and those delivered too often.

They become dead letters with everything that is known about them (the error's details say how often the
step was delivered, when it was sent, and which worker gave it up). Their run gets a failing result if
its name can still be read, and then they are removed from the stream. Until then nothing is
acknowledged, so a worker that dies in between leaves the step for the next one.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import Delivery
from hocket.kit.nats.letter_budget import LetterBudget
from hocket.kit.process.clock import now_ms
from hocket.schemas import ids
from hocket.schemas.checks import bounded
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import ErrorInfo
from hocket.schemas.messages import AttemptFinished
from hocket.workers.errors import StepEndsWorker, StepMalformed, StepUndeliverable
from hocket.workers.runtime.results.failures import COMPONENT

if TYPE_CHECKING:
    from hocket.kit.nats.protocol import RawMessage

SOURCE = "step"
TERM = b"+TERM"
MAX_PARTITIONS = 1_024
_MORE = b'"more":'

log = structlog.get_logger()
_reporting = Reporting(at_once=20)
letters = LetterBudget()
"""The process's budget for unreadable messages; a readable step that was delivered too often is always
kept."""


class Name(BaseModel):
    """What must be readable of a step so that its run can be told."""

    model_config = ConfigDict(extra="ignore", strict=True)

    run_id: bounded.Name
    step: bounded.StepKey
    attempt: bounded.Int32
    partition: int = Field(ge=0, lt=MAX_PARTITIONS)
    dispatched_at_ms: bounded.Moment | None = None
    capability: bounded.Name | None = None


async def bury_malformed(bus: Bus, msg: "RawMessage", error: ValidationError, worker: str) -> None:
    """Dead-letter a message that is not a StepRequested, and remove it from the stream."""
    info, kept = _malformed(msg, error)
    await _bury_and_end(bus, msg, info, worker, kept=kept)


async def bury_malformed_member(
    bus: Bus, msg: "RawMessage", error: ValidationError, worker: str
) -> None:
    """Dead-letter a part of a bundle that is not a StepRequested; the message stays for the others."""
    info, kept = _malformed(msg, error)
    await _bury(bus, msg.subject, msg.data, msg.headers, info, worker, kept=kept)


async def bury_undeliverable(bus: Bus, msg: "RawMessage", delivery: Delivery, worker: str) -> None:
    """Dead-letter a step that was delivered too often."""
    error = StepUndeliverable(deliveries=delivery.deliveries, component=COMPONENT)
    await _bury_and_end(bus, msg, _with_time_sent(error, delivery), worker)


async def bury_ending_worker(
    bus: Bus, msg: "RawMessage", delivery: Delivery, deaths: int, worker: str
) -> None:
    """Dead-letter a step whose workers died too often, `deaths` times while it was alone. The caller
    must remove it from the stream."""
    told = {"deliveries": delivery.deliveries, "component": COMPONENT}
    error = StepEndsWorker(deaths=deaths, **told) if deaths else StepUndeliverable(**told)
    info = _with_time_sent(error, delivery)
    await _bury(bus, msg.subject, msg.data, msg.headers, info, worker)


def _malformed(msg: "RawMessage", error: ValidationError) -> tuple[ErrorInfo, bool]:
    """Return what is wrong with a message, and whether there is room to keep it."""
    fault = first_fault(error)
    reason = f"{fault.field('the body')}: {fault.reason}"
    info = StepMalformed(reason=reason, component=COMPONENT).info()
    return info, letters.takes(len(msg.data) + len(msg.head))


async def _bury_and_end(
    bus: Bus, msg: "RawMessage", info: ErrorInfo, worker: str, *, kept: bool = True
) -> None:
    losses = bus.losses
    await _bury(bus, msg.subject, msg.data, msg.headers, info, worker, kept=kept)
    if losses == bus.losses:  # otherwise another message may have its sequence by now
        bus.publish_nowait(msg.reply, TERM)


async def _bury(
    bus: Bus,
    subject: str,
    payload: bytes,
    headers: Mapping[str, str] | None,
    info: ErrorInfo,
    worker: str,
    *,
    kept: bool = True,
) -> None:
    if count := _reporting.due(info.code if kept else f"{info.code} not kept"):
        log.error(
            "step_dead_lettered",
            subject=subject,
            code=info.code,
            reason=info.message,
            kept=kept,
            not_kept=letters.unkept,
            count=count,
        )
    payload = _alone(payload)
    told = info.model_copy(update={"details": {**info.details, "given_up_by": worker}})
    if kept:
        await dead_letters.bury(
            bus, SOURCE, subject=subject, payload=payload, headers=dict(headers or {}), error=told
        )
    name = name_of(payload)
    if name is not None:
        finished = AttemptFinished(
            run_id=name.run_id,
            step=name.step,
            attempt=name.attempt,
            error=info,
            started_at_ms=now_ms(),
            finished_at_ms=now_ms(),
            worker=worker,
            dispatched_at_ms=name.dispatched_at_ms,
            capability=name.capability,
        )
        msg_id = ids.result_id(
            ids.attempt_id(name.run_id, name.step, name.attempt), name.dispatched_at_ms
        )
        await bus.publish(
            bus.identity.result_subject(name.partition, AttemptFinished.kind),
            finished.model_dump_json().encode(),
            msg_id=ids.capable(msg_id, name.capability),
        )


def _alone(payload: bytes) -> bytes:
    """Return the first step of a bundle alone, because the others are not given up with it."""
    if _MORE not in payload:
        return payload
    try:
        body: Any = from_json(payload)
    except ValueError:
        return payload
    if not isinstance(body, dict) or not body.pop("more", None):
        return payload
    return to_json(body)


def name_of(payload: bytes) -> Name | None:
    """Return whose step a message is, or None if that cannot be read."""
    for read in (from_json, json.loads):  # json.loads accepts deeper nesting
        try:
            body: Any = read(payload)
            return Name.model_validate(body)
        except (ValueError, RecursionError):
            continue
    return None


def _with_time_sent(error: StepUndeliverable, delivery: Delivery) -> ErrorInfo:
    info = error.info()
    sent_at_ms = round(delivery.stored_at_ms)
    return info.model_copy(update={"details": {**info.details, "sent_at_ms": sent_at_ms}})
