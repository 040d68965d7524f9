"""Handles the messages of the log one after the other, each as a whole: while Postgres is away an
event waits; if our rules cannot apply one, it is kept as a dead letter, its run ends, and the next
is applied.
"""

import asyncio

import structlog

from hocket.coordinator.core.run.faults import EventNotApplicable, reason_of
from hocket.coordinator.partition.events.event_application import EventApplication
from hocket.coordinator.partition.events.event_reader import EventReader
from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.postgres.errors import AWAY, fails_alone
from hocket.kit.process.limits.memory import end_if_short
from hocket.schemas.messages import LogEvent, OutlookChanged

PAUSE_S = 0.2

log = structlog.get_logger(__name__)


class EventHandler:
    """Handles the log of one partition in one tenure."""

    def __init__(self, context: TenureContext, application: EventApplication) -> None:
        self._services = services = context.services
        self._tenure = context.tenure
        self._unwritten = context.tenure.unwritten
        self._runs = context.runs
        self._application = application
        self._reader = EventReader(
            context.number, partitions=services.partitions, bus=services.bus, posts=context.posts
        )

    async def handle(self, message: LogMessage) -> None:
        """Apply one message of the log."""
        services = self._services
        await services.committer.wait_for_capacity()
        await services.bus.wait_for_capacity()
        turns = services.turns
        if turns.are_used_up:
            await turns.take()
        self._unwritten.begin_event()
        try:
            events = await self._reader.events_of(message)
            believed = self._reader.believed(events, message)
            services.metrics.applied(message.kind, len(believed))
            if len(believed) > 1:
                await self._application.expect(believed)
            begun_ms = turns.begin()
            for event in believed:
                if turns.are_used_up:
                    await turns.take()
                    begun_ms = turns.begin()
                await self._apply_surely(event, message)
                begun_ms = turns.worked(begun_ms)
            services.dispatcher.release()
        except BaseException:
            self._tenure.break_off()
            raise
        else:
            self._unwritten.end_event()
        finally:
            self._application.applied_all()
        size_bytes = len(message.body)
        self._tenure.applied(message.seq, message.msg_id, size_bytes)
        for event in events:
            if not isinstance(event, OutlookChanged):
                self._runs.grew(event.run_id, size_bytes // len(events))

    async def _apply_surely(self, event: LogEvent, message: LogMessage) -> None:
        """Apply an event; wait while Postgres is away; set the event aside if our rules cannot
        apply it."""
        fault: Exception | None = None
        while True:
            raised: Exception | None = None
            try:
                if fault is None:
                    await self._application.apply(event, message.at_ms)
                else:
                    await self._set_aside(event, message, fault)
                return
            except BusUnavailable:
                raise  # the process ends
            except AWAY as away:
                log.warning("log_waits", **self._place(message), reason=str(away))
            except Exception as error:
                if fault is not None:
                    raise
                end_if_short(error)
                log.exception("log_event_failed", **self._place(message))
                raised = error
            if raised is not None and await fails_alone(raised, self._services.store.ping):
                fault = raised
                continue
            await asyncio.sleep(PAUSE_S)

    def _place(self, message: LogMessage) -> dict[str, int]:
        return {"partition": self._tenure.partition, "seq": message.seq}

    async def _set_aside(self, event: LogEvent, message: LogMessage, error: Exception) -> None:
        """End the run of an event that cannot be applied, then keep the event as a dead letter: in
        this order, because the letter may have to wait for NATS."""
        info = EventNotApplicable(kind=event.kind, reason=reason_of(error)).info()
        await self._application.give_up(event, info, message.at_ms)
        await self._reader.bury(message, info)
        self._services.metrics.set_aside("event")
