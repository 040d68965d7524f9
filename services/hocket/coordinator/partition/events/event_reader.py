"""Reads the messages of the log: returns their plausible events from authorized senders.

What cannot be read, or could not be applied, is kept as a dead letter and blocks nothing.
"""

import asyncio

import structlog

from hocket.coordinator.core.run.event_checks import doubt, plausible
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.events.malformed_results import (
    ESCAPED_NUL,
    ResultMalformed,
    read_leniently,
    with_all_keys,
)
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import subjects
from hocket.schemas.errors import ErrorClass, ErrorInfo
from hocket.schemas.messages import AttemptFinished, LogEvent, RunCharged
from hocket.schemas.structs.read_results import read_log

MAX_CUT_BYTES = 64 * 1024
"""How much is kept of an event that is too large for a dead letter."""
MAX_REASON_CHARS = 1_000
MAX_AT_ONCE_BYTES = 16 * 1024
"""A message that cannot be read and is larger is read leniently in a thread: that takes long."""
MAX_UNREADABLE = 20
"""The most unreadable messages that become dead letters in REPORT_S: more would push out useful ones."""

_UNSEALED = "it is not sealed by this platform"
_UNSEALED_CHARGE = (
    "it is not sealed by this coordinator's HOCKET_USAGE_KEY, so the run's total lacks what it "
    "reports: give coordinators the key that gateways have"
)

log = structlog.get_logger(__name__)


class EventReader:
    """Reads the events of one partition; `partitions` is how many the installation has."""

    def __init__(self, number: int, *, partitions: int, bus: Bus, posts: LogPosts) -> None:
        self._number = number
        self._partitions = partitions
        self._bus = bus
        self._posts = posts
        self._reporting = Reporting()
        self._unreadable = Reporting(at_once=MAX_UNREADABLE)

    async def events_of(self, message: LogMessage) -> tuple[LogEvent, ...]:
        """Return the events of a message; none if it cannot be read. The attempts of results that are
        malformed fail."""
        try:
            events = read_log(message.kind, message.body)
            return events if ESCAPED_NUL not in message.body else with_all_keys(events)
        except ValueError as error:
            reason = str(error)[:MAX_REASON_CHARS]
        found = await _read_leniently(message)
        if found and not any(_is_malformed(result) for result in found):
            return found
        if not (count := self._unreadable.due("")):
            return found  # of many at the same time, only some are kept for inspection
        log.error(
            "log_event_unreadable",
            subject=subjects.log(self._number, message.kind),
            seq=message.seq,
            reason=reason,
            count=count,
        )
        info = ErrorInfo(
            code="log_event_unreadable",
            message=reason,
            error_class=ErrorClass.INVALID,
        )
        await self.bury(message, info)
        return found

    def believed(self, events: tuple[LogEvent, ...], message: LogMessage) -> list[LogEvent]:
        """Return the events that are plausible and from authorized senders; others change nothing."""
        found: list[LogEvent] = []
        sealed = self._posts.is_sealed(message)
        at_ms = message.at_ms
        for event in events:
            reason = doubt(event, partition=self._number, partitions=self._partitions, now_ms=at_ms)
            if reason is None and not sealed:
                reason = _UNSEALED_CHARGE if message.kind == RunCharged.kind else _UNSEALED
            if reason is None:
                found.append(plausible(event, at_ms))
            elif count := self._reporting.due(reason):
                log.warning(
                    "log_event_not_believed",
                    partition=self._number,
                    seq=message.seq,
                    kind=message.kind,
                    reason=reason,
                    count=count,
                )
        return found

    async def bury(self, message: LogMessage, info: ErrorInfo) -> None:
        """Keep an event as a dead letter; if it does not fit beside its error, only its beginning."""
        subject = subjects.log(self._number, message.kind)
        for payload in (message.body, message.body[:MAX_CUT_BYTES]):
            try:
                await dead_letters.bury(
                    self._bus, "log", subject=subject, payload=payload, headers=None, error=info
                )
                return
            except BusUnavailable:
                raise
            except Exception:
                log.exception("dead_letter_not_kept", partition=self._number, seq=message.seq)


async def _read_leniently(message: LogMessage) -> tuple[AttemptFinished, ...]:
    told = message.kind, message.body, message.msg_id.rpartition("@")[0]
    if len(message.body) > MAX_AT_ONCE_BYTES:
        return await asyncio.to_thread(read_leniently, *told)
    return read_leniently(*told)


def _is_malformed(result: AttemptFinished) -> bool:
    return result.error is not None and result.error.code == ResultMalformed.code
