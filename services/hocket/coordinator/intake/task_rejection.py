"""Rejects tasks: each is kept as a dead letter, announced to its caller and to EVENTS as a public
fact, and acknowledged, so that it never blocks others."""

from collections.abc import Callable

import structlog

from hocket.coordinator.intake.task_message import reply_to
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats import dead_letters
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import event_headers
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.letter_budget import LetterBudget
from hocket.kit.nats.protocol import RawMessage
from hocket.kit.postgres.errors import AWAY
from hocket.schemas import subjects
from hocket.schemas.checks.bounded import MAX_NAME_CHARS, stored_text
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import TaskRejected

MAX_REJECTIONS_LOGGED = 100
"""The most that are logged in 10 seconds, with how many there were."""

log = structlog.get_logger(__name__)


class TaskRejection:
    """Rejects tasks; any part of it that fails because of the message's content is skipped. `done`
    acknowledges a task."""

    def __init__(
        self, bus: Bus, metrics: CoordinatorMetrics, *, done: Callable[[str], None]
    ) -> None:
        self._bus = bus
        self._done = done
        self._metrics = metrics
        self._letters = LetterBudget()
        self._reporting = Reporting(at_once=MAX_REJECTIONS_LOGGED)

    async def reject(self, message: RawMessage, error: ErrorInfo, *, run_id: str | None) -> None:
        """Reject a task; `run_id` is that of its run, if it could be read."""
        self._metrics.task("rejected")
        tenant, pipeline = message.subject.split(".")[2:4]
        kept = self._letters.takes(len(message.data) + len(message.head))
        if count := self._reporting.due("rejected" if kept else "not kept"):
            log.warning(
                "task_rejected",
                subject=message.subject,
                code=error.code,
                reason=error.message,
                kept=kept,
                count=count,
            )
        if kept:
            await self._bury(message, error)
        else:
            self._metrics.letters_not_kept.inc()
        try:
            self._tell(message, tenant, pipeline, error, run_id)
        except BusUnavailable:
            raise
        except Exception:
            log.exception("rejection_not_told", subject=message.subject)
        self._done(message.reply)

    async def _bury(self, message: RawMessage, error: ErrorInfo) -> None:
        try:
            await dead_letters.bury(
                self._bus,
                "task",
                subject=message.subject,
                payload=message.data,
                headers=message.headers,
                error=error,
            )
        except (*AWAY, BusUnavailable):
            raise
        except Exception:
            log.exception("dead_letter_not_kept", subject=message.subject)

    def _tell(
        self, message: RawMessage, tenant: str, pipeline: str, error: ErrorInfo, run_id: str | None
    ) -> None:
        rejected = TaskRejected(
            tenant=str(stored_text(tenant, limit=MAX_NAME_CHARS)),
            pipeline=str(stored_text(pipeline, limit=MAX_NAME_CHARS)),
            error=error,
            task_id=run_id,
        )
        payload = rejected.model_dump_json().encode()
        try:
            inbox = reply_to(message.headers or {})
        except HocketError:
            inbox = None
        if inbox is not None:
            self._bus.publish_nowait(inbox, payload)
        identity = message.reply.rsplit(".", 4)[-4]
        self._bus.publish_durable(
            subjects.event(tenant, pipeline, TaskRejected.kind),
            payload,
            headers=event_headers("hocket.task.rejected", "hocket/intake", identity),
        )
