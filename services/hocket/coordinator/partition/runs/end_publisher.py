"""The messages that announce the end of a run: to EVENTS, to the caller, and to the parent run's
step."""

import asyncio
from typing import Any

from hocket.coordinator.core.run.ends.critical_path import timing_of
from hocket.coordinator.core.run.state.messages import end_message, rejection_of
from hocket.coordinator.core.run.state.run import RUN_DEGRADED, RUN_REJECTED, Run
from hocket.coordinator.partition.runs.caller_replies import CallerReplies
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.cloudevents import event_headers
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import Capabilities, id_of
from hocket.schemas.errors import PayloadTooLarge
from hocket.schemas.messages import (
    AttemptFinished,
    RunFinished,
    RunParent,
    Spend,
    TaskRejected,
    encoded,
    encoded_without_defaults,
)

EVENT_SOURCE = "hocket/coordinator"


class EndPublisher:
    """Publishes the ends of runs. If an end is too large for a message, its output is left out."""

    def __init__(self, bus: Bus, capabilities: Capabilities | None, replies: CallerReplies) -> None:
        self._bus = bus
        self._capabilities = capabilities
        self._replies = replies

    def publish(self, run: Run, parent: RunParent | None = None) -> "list[asyncio.Future[PubAck]]":
        """Announce a run's end to everybody; return what the streams will acknowledge. `parent`:
        the step that asks now, if it is not the one that asked first."""
        if run.status == RUN_REJECTED:
            return [self._rejection(run)]
        return self._finish(run, parent or run.parent)

    def answer(self, run: Run, parent: RunParent | None = None) -> None:
        """Answer the caller and the parent run, without the public event; `parent` as in `publish`."""
        try:
            self._answer(run, end_message(run), parent or run.parent)
        except PayloadTooLarge:
            self._answer(run, end_message(run, too_large=True), parent or run.parent)

    def tell_parent(self, parent: RunParent, result: AttemptFinished) -> "asyncio.Future[PubAck]":
        """Tell a step of another run how its sub-run ended."""
        attempt_id = ids.attempt_id(parent.run_id, parent.step, parent.attempt)
        msg_id = ids.result_id(attempt_id, parent.dispatched_at_ms)
        if result.retold:  # otherwise the stream would drop it as a repeat of the end
            outside = f":{result.outside_usd}" if result.outside_usd else ""
            msg_id = f"{msg_id}:{result.spend.cost_usd}{outside}"
        msg_id = ids.capable(msg_id, parent.capability)
        subject = subjects.log(parent.partition, AttemptFinished.kind)
        try:
            return self._bus.publish_durable(
                subject, encoded_without_defaults(result), msg_id=msg_id
            )
        except PayloadTooLarge as error:
            refused = result.model_copy(update={"output": None, "error": error.info()})
            body = encoded_without_defaults(refused)
            return self._bus.publish_durable(subject, body, msg_id=msg_id)

    def _finish(self, run: Run, parent: RunParent | None) -> "list[asyncio.Future[PubAck]]":
        assert run.finished_at_ms is not None, run.run_id
        payload = end_message(run)
        headers = event_headers(
            "hocket.run.finished",
            EVENT_SOURCE,
            f"{run.run_id}:end",
            subject=run.run_id,
            time_ms=run.finished_at_ms,
            traceparent=run.traceparent,
        )
        subject = subjects.event(run.tenant, run.pipeline, RunFinished.kind)
        # once its data is deleted, the same key may begin another run of this id
        identity = f"{run.run_id}:end:{round(run.accepted_at_ms)}"
        msg_id = id_of(self._capabilities, identity)
        try:
            told = [self._bus.publish_durable(subject, payload, msg_id=msg_id, headers=headers)]
        except PayloadTooLarge:
            payload = end_message(run, too_large=True)
            told = [self._bus.publish_durable(subject, payload, msg_id=msg_id, headers=headers)]
        return told + self._answer(run, payload, parent)

    def _answer(
        self, run: Run, payload: bytes, parent: RunParent | None
    ) -> "list[asyncio.Future[PubAck]]":
        if run.reply_to is not None:
            self._replies.send(run.reply_to, run, payload)
        if parent is None:
            return []
        if _asks_for_another(parent, run.parent or parent):
            parent = run.parent or parent
        return [self.tell_parent(parent, end_result(run, parent))]

    def _rejection(self, run: Run) -> "asyncio.Future[PubAck]":
        payload = encoded(rejection_of(run))
        identity = f"{run.run_id}:rejected:{run.finished_at_ms}"
        headers = event_headers(
            "hocket.task.rejected", EVENT_SOURCE, identity, traceparent=run.traceparent
        )
        subject = subjects.event(run.tenant, run.pipeline, TaskRejected.kind)
        if run.reply_to is not None:
            self._bus.publish_nowait(run.reply_to, payload)
        msg_id = id_of(self._capabilities, identity)
        return self._bus.publish_durable(subject, payload, msg_id=msg_id, headers=headers)


def result_for(parent: RunParent, **end: Any) -> AttemptFinished:
    """Return the end of a sub-run as a result for the step that began it."""
    return AttemptFinished(
        run_id=parent.run_id,
        step=parent.step,
        attempt=parent.attempt,
        worker="sub-run",
        capability=parent.capability,
        **{"dispatched_at_ms": parent.dispatched_at_ms, **end},
    )


def end_result(run: Run, parent: RunParent, *, retold: bool = False) -> AttemptFinished:
    """Return the end of a run as a result for a step that asks for it. `retold`: it was told before,
    and the run has spent more since."""
    executed = run.parent or parent
    return result_for(
        parent,
        output=run.output.value,
        error=run.error,
        spend=Spend(cost_usd=run.spent_usd),
        timing=timing_of(run.critical_path),
        degraded=run.status == RUN_DEGRADED,
        outside_usd=run.outside_usd,
        retold=retold,
        dispatched_at_ms=parent.dispatched_at_ms,
        input_digest=executed.input_digest or ids.input_digest(run.input.value),
    )


def _asks_for_another(parent: RunParent, executed: RunParent) -> bool:
    """Tell whether a step asks for a run of another input than its sub-run had, because the end of its
    log was lost. It is answered as the one that asked first, so that it compares the inputs: what
    answers its own request is not compared."""
    asked = parent.input_digest
    return "" != asked != executed.input_digest != ""
