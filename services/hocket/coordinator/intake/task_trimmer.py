"""Removes tasks that are done from their streams.

TASKS and TASK_BATCHES keep what is acknowledged: removing each message by itself would cost a flush,
as much as storing it. The owner of partition 0 removes all messages up to the consumer's ack floor at
once. A task that waits for workers stays unacknowledged and holds the floor back. So once more than
MAX_KEPT acknowledged messages are behind one, or more than KEPT_SHARE of the stream's bound, each
coordinator removes what it acknowledges by itself, until the floor has moved on.

An older release created both streams as work queues, which remove what is acknowledged; there is
nothing left to do there.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import structlog

from hocket.coordinator.intake.consumer import DURABLE, PUBLISHED
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import is_ack_of, parse_ack_subject
from hocket.kit.nats.errors import BusUnavailable

LOOK_EVERY_S = 1.0
MAX_KEPT = 10_000
"""Acknowledged messages above the ack floor from which on each is removed by itself ..."""
KEPT_SHARE = 0.125
"""... or this share of the stream's bound, whichever is reached first."""
API_TIMEOUT_MS = 10_000.0
_NOT_FOUND = 404

log = structlog.get_logger(__name__)


class TaskTrimmer:
    """Acknowledges tasks, and removes what is acknowledged. `is_mine` tells whether this coordinator
    is the one to remove what all have acknowledged."""

    def __init__(self, bus: Bus, *, is_mine: Callable[[], bool]) -> None:
        self._bus = bus
        self._is_mine = is_mine
        self._crowded: set[str] = set()
        """The streams with many acknowledged messages that one unacknowledged holds back."""

    def done(self, ack_subject: str) -> None:
        """Acknowledge a task that is committed or rejected."""
        self._bus.ack(ack_subject)
        for stream in self._crowded:
            if is_ack_of(ack_subject, stream):
                seq = parse_ack_subject(ack_subject).stream_seq
                request = json.dumps({"seq": seq, "no_erase": True}).encode()
                self._bus.publish_nowait(f"$JS.API.STREAM.MSG.DELETE.{stream}", request)

    async def run(self) -> None:
        """Check regularly; never returns, cancel to stop."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for stream in PUBLISHED:
                try:
                    await self.look(stream)
                except BusUnavailable as error:
                    log.debug("tasks_not_trimmed", stream=stream, reason=str(error))
                except (
                    Exception
                ):  # until it works again, the stream refuses what it has no room for
                    log.exception("tasks_not_trimmed", stream=stream)

    async def look(self, stream: str) -> None:
        """Remove what is acknowledged up to the floor, and look how much is left above it."""
        info = await self._api(f"STREAM.INFO.{stream}", {})
        state = info["state"]
        if info["config"]["retention"] == "workqueue" or not state["messages"]:
            self._crowded.discard(stream)
            return
        consumer = await self._api(f"CONSUMER.INFO.{stream}.{DURABLE}", {})
        if not consumer:
            return
        floor: int = consumer["ack_floor"]["stream_seq"]
        if floor >= state["first_seq"] and self._is_mine():
            await self._api(f"STREAM.PURGE.{stream}", {"seq": floor + 1})
        unacked = consumer["num_pending"] + consumer["num_ack_pending"]
        below = max(0, floor + 1 - state["first_seq"])
        self._note(stream, info, kept=state["messages"] - unacked - below)

    def _note(self, stream: str, info: dict[str, Any], *, kept: int) -> None:
        """Note whether a stream has more acknowledged messages above the floor than it should."""
        max_bytes, state = info["config"]["max_bytes"], info["state"]
        kept_bytes = kept * state["bytes"] / state["messages"]
        if kept >= MAX_KEPT or kept_bytes >= KEPT_SHARE * max_bytes > 0:
            if stream not in self._crowded:
                log.info("tasks_removed_singly", stream=stream, kept=kept)
            self._crowded.add(stream)
        else:
            self._crowded.discard(stream)

    async def _api(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """Call JetStream's API; {} if what is asked about does not exist."""
        answer: dict[str, Any] = await self._bus.api(verb, request, timeout_ms=API_TIMEOUT_MS)
        error = answer.get("error", {})
        if error.get("code") == _NOT_FOUND:
            return {}
        if error:
            raise BusUnavailable(reason=error.get("description", "no answer"))
        return answer
