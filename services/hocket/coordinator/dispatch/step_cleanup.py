"""What a NATS server that came back makes of the stream STEPS, and what is done about it.

A work queue drops a message when it is acknowledged. After a NATS server lost power or was restored
from a copy, it may have the message again and still know that it was acknowledged: nobody is ever
given it, and it stays there as a phantom backlog. What a consumer has acknowledged, up to its
floor, is removed.

A server that was killed may also have lost the stream's last messages, or its whole count, but not what
its consumers know: they are ahead of the stream, and would pass over as many new steps. While nothing is
there for such a consumer, it is set back to the stream's end; those of EVENTS always are.

The owner of the first partition checks when it begins, soon after a lost connection is back, and every
LOOK_S if the stream is not empty. It fails only with the bus, and then tries again later.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects

LOOK_S = 20.0
TICK_S = 0.5
API_TIMEOUT_MS = 5_000.0
MAX_CONSUMERS = 4_096
"""How many consumers are examined; there are three for each node type, and for each of its queues."""

log = structlog.get_logger(__name__)


async def keep_removing(bus: Bus, *, is_mine: Callable[[], bool]) -> None:
    """Check regularly, while `is_mine` returns true; cancel to stop."""
    losses, rested_s = -1, 0.0  # it may have come back just before this process began
    while True:
        await asyncio.sleep(TICK_S)
        rested_s += TICK_S
        came_back = bus.losses != losses
        if not bus.connected or not is_mine() or not (came_back or rested_s >= LOOK_S):
            continue
        seen, rested_s = bus.losses, 0.0
        try:
            await remove(bus, came_back=came_back)
        except BusUnavailable as error:
            log.debug("steps_not_cleaned_up", reason=str(error))
        else:
            losses = seen


async def remove(bus: Bus, *, came_back: bool = True) -> int:
    """Remove what is acknowledged but still there, and return how many messages that was. `came_back`:
    the server may have lost what consumers have been given."""
    if came_back:
        for stream in (subjects.STEPS, subjects.EVENTS):
            await set_back(bus, stream)
    if not (await _asked(bus, f"STREAM.INFO.{subjects.STEPS}"))["state"]["messages"]:
        return 0
    removed = 0
    for consumer in await _consumers(bus, subjects.STEPS):
        subject, floor = consumer["config"].get("filter_subject"), consumer["ack_floor"]
        if not subject or not floor["stream_seq"]:
            continue
        state = await _state(bus, subject)
        if not state.get("subjects") or floor["stream_seq"] > state["last_seq"]:
            continue  # a floor beyond the end belongs to messages that the stream has lost
        removed += await _purge(bus, subject, floor["stream_seq"])
    return removed


async def set_back(bus: Bus, stream: str) -> None:
    """Set back the durable consumers of a stream that have been given more than it ever had."""
    consumers = await _consumers(bus, stream)
    end: int = (await _asked(bus, f"STREAM.INFO.{stream}"))["state"]["last_seq"]  # after the others
    for consumer in consumers:
        config = consumer["config"]
        if consumer["delivered"]["stream_seq"] <= end or "durable_name" not in config:
            continue
        if stream == subjects.STEPS:
            state = await _state(bus, config.get("filter_subject", ">"))
            if state.get("subjects"):
                continue  # which of them it was given is unknown
        await _deliver_from(bus, stream, consumer, end + 1)


async def _state(bus: Bus, subject: str) -> dict[str, Any]:
    """Return the state of STEPS, with its subjects of a kind."""
    asked = await _asked(bus, f"STREAM.INFO.{subjects.STEPS}", subjects_filter=subject)
    state: dict[str, Any] = asked["state"]
    return state


async def _consumers(bus: Bus, stream: str) -> list[Any]:
    """Return the consumers of a stream; the server lists 256 at a time."""
    found: list[Any] = []
    while len(found) < MAX_CONSUMERS:
        listed = await _asked(bus, f"CONSUMER.LIST.{stream}", offset=len(found))
        page = listed.get("consumers") or []
        found += page
        if not page or len(found) >= listed["total"]:
            break
    return found


async def _purge(bus: Bus, subject: str, floor: int) -> int:
    answer = await _asked(
        bus, f"STREAM.PURGE.{subjects.STEPS}", filter=subject, seq=floor + 1
    )  # up to, but not including, that sequence
    purged: int = answer["purged"]
    if purged:
        log.warning("acknowledged_steps_removed", subject=subject, steps=purged, up_to_seq=floor)
    return purged


async def _deliver_from(bus: Bus, stream: str, consumer: dict[str, Any], seq: int) -> None:
    """Have a consumer deliver from a sequence on."""
    name, was_at = consumer["name"], consumer["delivered"]["stream_seq"]
    log.warning("consumer_set_back", stream=stream, consumer=name, seq=seq, was_at=was_at)
    try:
        await _asked(bus, f"CONSUMER.RESET.{stream}.{name}", seq=seq)
    except BusUnavailable:  # a server before 2.14
        is_old = True
    else:
        is_old = False
    if is_old:  # who pulls from it finds it missing for a moment
        await _asked(bus, f"CONSUMER.DELETE.{stream}.{name}")
        create = f"CONSUMER.DURABLE.CREATE.{stream}.{name}"
        config = {**consumer["config"], "deliver_policy": "by_start_sequence", "opt_start_seq": seq}
        if stream == subjects.STEPS:  # a work queue delivers all that is left
            config = consumer["config"]
        await _asked(bus, create, stream_name=stream, config=config)


async def _asked(bus: Bus, subject: str, **request: Any) -> Any:
    answer = await bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
    if "error" in answer:
        raise BusUnavailable(reason=answer["error"].get("description", subject))
    return answer
