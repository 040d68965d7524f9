"""What a NATS server that was killed or restored makes of the stream STEPS, and its repair.

A work queue drops a message when it is acknowledged. After a NATS server lost power or was restored
from a copy, it may have the message again and still know that it was acknowledged: nobody is ever
given it, and it stays there as a phantom backlog. What a consumer has acknowledged, up to its
floor, is removed: the owner of the first partition checks every LOOK_S, and stops there if the
stream is empty. It fails only with the bus, and then tries again later.

A server that was killed may also have forgotten how many steps an empty stream had, but not how many its
consumers were given: they would pass over as many new steps. `restore_count` moves the count past
them. It must come before anybody posts a step to the server that came back.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects

LOOK_S = 20.0
API_TIMEOUT_MS = 5_000.0
MAX_CONSUMERS = 4_096
"""How many consumers are examined; there are three for each node type, and for each of its queues."""

log = structlog.get_logger(__name__)


async def keep_removing(bus: Bus, *, is_mine: Callable[[], bool]) -> None:
    """Check regularly, while `is_mine` returns true; cancel to stop."""
    while True:
        await asyncio.sleep(LOOK_S)
        if not is_mine():
            continue
        try:
            await remove(bus)
        except BusUnavailable as error:
            log.debug("steps_not_cleaned_up", reason=str(error))


async def remove(bus: Bus) -> int:
    """Remove what is acknowledged but still there; return how many messages that was."""
    if not (await _asked(bus, f"STREAM.INFO.{subjects.STEPS}"))["state"]["messages"]:
        return 0
    removed = 0
    for consumer in await _consumers(bus):
        subject, floor = consumer["config"].get("filter_subject"), consumer["ack_floor"]
        if not subject or not floor["stream_seq"]:
            continue
        state = await _asked(bus, f"STREAM.INFO.{subjects.STEPS}", subjects_filter=subject)
        if not state["state"].get("subjects") or floor["stream_seq"] > state["state"]["last_seq"]:
            continue  # a floor beyond the end belongs to messages that the stream has lost
        removed += await _purge(bus, subject, floor["stream_seq"])
    return removed


async def restore_count(bus: Bus) -> None:
    """Have an empty STEPS count on from what its consumers were given. Several coordinators may do that
    at once: it removes no step that was posted after one of them had done it."""
    given = max((one["delivered"]["stream_seq"] for one in await _consumers(bus)), default=0)
    state = (await _asked(bus, f"STREAM.INFO.{subjects.STEPS}"))["state"]
    if state["messages"] or state["last_seq"] >= given:  # the server itself sets back the others
        return
    await _asked(bus, f"STREAM.PURGE.{subjects.STEPS}", seq=given + 1)
    log.warning("step_count_restored", was=state["last_seq"], now=given)


async def _consumers(bus: Bus) -> list[Any]:
    """Return the consumers of STEPS; the server lists 256 at a time."""
    found: list[Any] = []
    while len(found) < MAX_CONSUMERS:
        listed = await _asked(bus, f"CONSUMER.LIST.{subjects.STEPS}", offset=len(found))
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


async def _asked(bus: Bus, subject: str, **request: Any) -> Any:
    answer = await bus.api(subject, request, timeout_ms=API_TIMEOUT_MS)
    if "error" in answer:
        raise BusUnavailable(reason=answer["error"].get("description", subject))
    return answer
