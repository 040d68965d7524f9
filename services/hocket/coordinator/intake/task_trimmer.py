"""Removes tasks that are done from their streams.

TASKS and TASK_BATCHES keep what is acknowledged: removing each message by itself would cost a flush,
as much as storing it. The owner of partition 0 removes all messages up to the consumer's ack floor at
once. A task that waits for workers stays unacknowledged and holds the floor back. What a coordinator has
acknowledged above it is removed message by message: after KEPT_S, or at once while more than MAX_KEPT
acknowledged messages are there, or more than KEPT_SHARE of the stream's bound, or the stream is half
full, or while it matters whose tasks wait (`waiting_tenants.py`). What was acknowledged by a coordinator
that has ended, or before the connection was lost, stays until the floor has moved on: servers that lost
power may have other messages at those sequences.

An older release created both streams as work queues, which remove what is acknowledged; there is
nothing left to do there.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import structlog

from hocket.coordinator.intake.consumer import DURABLE, PUBLISHED
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.delivery import is_ack_of, parse_ack_subject
from hocket.kit.nats.errors import BusUnavailable

LOOK_EVERY_S = 1.0
KEPT_S = 60.0
"""How long a task that is done may stay above the ack floor."""
MAX_KEPT = 10_000
"""Acknowledged messages above the ack floor from which on each is removed by itself at once ..."""
KEPT_SHARE = 0.125
"""... or this share of the stream's bound, whichever is reached first."""
REMOVED_PER_LOOK = 1_000
AT_ONCE = 16
"""How many messages are being removed at a time: all clients' requests wait in one queue of the server,
which flushes for each of these."""
MAX_REMEMBERED = 200_000
"""How many acknowledgements are remembered; if there are more, the first stay until the floor moves."""
API_TIMEOUT_MS = 10_000.0
_NOT_FOUND = 404
_UNAVAILABLE = 503

log = structlog.get_logger(__name__)


class TaskTrimmer:
    """Acknowledges tasks, and removes what is acknowledged. `is_mine` tells whether this coordinator
    is the one to remove what all have acknowledged, `is_watched` whether somebody looks whose tasks the
    streams hold."""

    def __init__(
        self, bus: Bus, *, is_mine: Callable[[], bool], is_watched: Callable[[], bool]
    ) -> None:
        self._bus = bus
        self._is_mine = is_mine
        self._is_watched = is_watched
        self._done: deque[str] = deque(maxlen=MAX_REMEMBERED)
        """The ack subjects of what was acknowledged since the last look."""
        self._kept: dict[str, dict[int, float]] = {stream: {} for stream in PUBLISHED}
        """For each stream, the sequences acknowledged here and not removed, and since when (the
        loop's clock)."""
        self._losses = bus.losses
        self._crowded: set[str] = set()
        """The streams with many acknowledged messages that one unacknowledged holds back."""

    def done(self, ack_subject: str) -> None:
        """Acknowledge a task that is committed or rejected."""
        self._bus.ack(ack_subject)
        self._done.append(ack_subject)

    async def run(self) -> None:
        """Check regularly; never returns, cancel to stop."""
        has_more = False
        while True:
            await asyncio.sleep(0 if has_more else LOOK_EVERY_S)
            has_more = False
            for stream in PUBLISHED:
                try:
                    has_more |= await self.look(stream)
                except BusUnavailable as error:
                    log.debug("tasks_not_trimmed", stream=stream, reason=str(error))
                except (
                    Exception
                ):  # until it works again, the stream refuses what it has no room for
                    log.exception("tasks_not_trimmed", stream=stream)

    async def look(self, stream: str) -> bool:
        """Remove what is acknowledged: up to the floor at once, above it message by message if it is
        time. Tell whether there is more to remove now."""
        self._sort()
        info = await self._api(f"STREAM.INFO.{stream}", {})
        state = info["state"]
        if info["config"]["retention"] == "workqueue" or not state["messages"]:
            self._kept[stream].clear()
            self._crowded.discard(stream)
            return False
        consumer = await self._api(f"CONSUMER.INFO.{stream}.{DURABLE}", {})
        if not consumer:
            return False
        floor: int = consumer["ack_floor"]["stream_seq"]
        if floor >= state["first_seq"] and self._is_mine():
            await self._api(f"STREAM.PURGE.{stream}", {"seq": floor + 1})
        unacked = consumer["num_pending"] + consumer["num_ack_pending"]
        below = max(0, floor + 1 - state["first_seq"])
        self._note(stream, info, kept=state["messages"] - unacked - below)
        kept = self._kept[stream]
        for seq in [seq for seq in kept if seq <= floor]:
            del kept[seq]
        overdue = self._overdue(stream)
        await self._remove(stream, overdue)
        return len(overdue) == REMOVED_PER_LOOK

    def _sort(self) -> None:
        """Note what was acknowledged since the last look, by stream."""
        now_s = asyncio.get_running_loop().time()
        if self._losses != self._bus.losses:
            self._losses = self._bus.losses
            self._done.clear()
            for kept in self._kept.values():
                kept.clear()
        done, self._done = self._done, deque(maxlen=MAX_REMEMBERED)
        for ack_subject in done:
            for stream, kept in self._kept.items():
                if is_ack_of(ack_subject, stream):
                    kept[parse_ack_subject(ack_subject).stream_seq] = now_s
        for kept in self._kept.values():
            for seq in list(islice(kept, max(0, len(kept) - MAX_REMEMBERED))):
                del kept[seq]

    def _note(self, stream: str, info: dict[str, Any], *, kept: int) -> None:
        """Note whether a stream has more acknowledged messages above the floor than it should."""
        max_bytes, state = info["config"]["max_bytes"], info["state"]
        kept_bytes = kept * state["bytes"] / state["messages"]
        half_full = kept > 0 and 2 * state["bytes"] >= max_bytes > 0
        if kept >= MAX_KEPT or kept_bytes >= KEPT_SHARE * max_bytes > 0 or half_full:
            if stream not in self._crowded:
                log.info("tasks_removed_singly", stream=stream, kept=kept)
            self._crowded.add(stream)
        else:
            self._crowded.discard(stream)

    def _overdue(self, stream: str) -> list[int]:
        """Return the sequences that are to be removed now, those acknowledged first before others."""
        at_once = stream in self._crowded or self._is_watched()
        until_s = asyncio.get_running_loop().time() - (0.0 if at_once else KEPT_S)
        found = (seq for seq, since_s in self._kept[stream].items() if since_s <= until_s)
        return list(islice(found, REMOVED_PER_LOOK))

    async def _remove(self, stream: str, seqs: Sequence[int]) -> None:
        for first in range(0, len(seqs), AT_ONCE):
            some = seqs[first : first + AT_ONCE]
            await asyncio.gather(*(self._remove_one(stream, seq) for seq in some))
            for seq in some:
                self._kept[stream].pop(seq, None)

    async def _remove_one(self, stream: str, seq: int) -> None:
        request = {"seq": seq, "no_erase": True}
        verb = f"STREAM.MSG.DELETE.{stream}"
        answer = await self._bus.api(verb, request, timeout_ms=API_TIMEOUT_MS)
        error = answer.get("error", {})
        if error.get("code") == _UNAVAILABLE:
            raise BusUnavailable(reason=error.get("description", "no answer"))
        if error:  # mostly because it is gone
            log.debug("task_not_removed", stream=stream, seq=seq, reason=error.get("description"))

    async def _api(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        """Call JetStream's API; {} if what is asked about does not exist."""
        answer: dict[str, Any] = await self._bus.api(verb, request, timeout_ms=API_TIMEOUT_MS)
        error = answer.get("error", {})
        if error.get("code") == _NOT_FOUND:
            return {}
        if error:
            raise BusUnavailable(reason=error.get("description", "no answer"))
        return answer
