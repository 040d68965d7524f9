"""What goes out to the workers: steps to the stream STEPS, cancellations, and the ends of attempts
that cannot go out."""

from math import inf

from hocket.coordinator.core.run.commands import CancelAttempt
from hocket.coordinator.core.run.state.messages import Dispatch
from hocket.coordinator.core.run.suspension.resumption import refusal_of
from hocket.coordinator.core.scheduling.lanes import lane_of
from hocket.coordinator.dispatch.bundle_sizes import BundleSizes
from hocket.coordinator.dispatch.bundles import CALL_MODELS, Bundles
from hocket.kit.access.grant_book import GrantBook
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.process.clock import monotonic_ms, now_ms
from hocket.schemas import ids, subjects
from hocket.schemas.access.grants import EVERYTHING, missing_at_step
from hocket.schemas.capabilities import Capabilities, hashed
from hocket.schemas.errors import ErrorInfo, HocketError
from hocket.schemas.messages import AttemptFinished, StepCancelled, encoded

LOST_MS = 30_000.0
"""For how long after NATS was away a worker may already have what is handed out again."""


class StepPublisher:
    """Publishes steps if their tenants have `grants` for what they use, short ones together in
    `bundles`. `by_slack`: whether short slack puts a step into the urgent lane."""

    def __init__(
        self,
        bus: Bus,
        grants: GrantBook,
        sizes: BundleSizes,
        *,
        by_slack: bool = True,
        capabilities: Capabilities | None = None,
    ) -> None:
        self._bus = bus
        self._grants = grants
        self._by_slack = by_slack
        self._capabilities = capabilities
        self.bundles = Bundles(bus, sizes, failed=self._failed, again=self._publish_alone)
        self._losses = bus.losses
        self._lost_until_ms = 0.0

    def refused(self, command: Dispatch) -> bool:
        """End a step that uses something its tenant has no grant for; tell whether it is one."""
        tenant = command.run.tenant
        grants = self._grants.of(tenant)
        if grants is EVERYTHING:
            return False
        missing = missing_at_step(command.node, command.step, grants, tenant)
        if missing is None:
            return False
        self.end(command, missing.info(), _result_id(command))
        return True

    def publish(self, command: Dispatch, slack_ms: float, held_ms: float) -> None:
        """Publish a step that is not `refused` now, given its present slack and how long it was held
        (ms); end it if it cannot go out."""
        run = command.run
        lane = lane_of(run.priority, slack_ms if self._by_slack else inf)
        subject = subjects.step(command.pool, lane)
        try:
            payload = command.body(slack_ms, held_ms)
            if self.bundles.takes(command):
                self.bundles.add(subject, command, payload)
                return
            headers = {"traceparent": run.traceparent} if run.traceparent else None
            if command.again:
                self.bundles.withdrawn(command.attempt_id)
                if self._may_be_repeated(command):
                    headers = {**(headers or {}), subjects.ASKED_AGAIN: "1"}
            self._bus.publish_durable(subject, payload, msg_id=command.msg_id, headers=headers)
        except BusUnavailable:
            raise
        except (
            HocketError,
            ValueError,
        ) as error:  # the step fails, like one that its worker refuses
            self._failed(command, error)

    def end(self, command: Dispatch, error: ErrorInfo, msg_id: str) -> None:
        """Post the end of an attempt that does not go out."""
        result = AttemptFinished(
            run_id=command.run.run_id,
            step=command.step,
            attempt=command.attempt,
            error=error,
            worker="coordinator",
            dispatched_at_ms=command.dispatched_at_ms,
            capability=command.capability,
        )
        self._bus.publish_durable(
            subjects.log(command.run.owner.partition, AttemptFinished.kind),
            encoded(result),
            msg_id=msg_id,
        )

    def cancel(self, command: CancelAttempt) -> None:
        """Tell the worker that has an attempt to stop it."""
        self.bundles.send()  # it may wait in a bundle: a step sent after its cancellation would run
        self.bundles.withdrawn(ids.attempt_id(command.run_id, command.step, command.attempt))
        cancelled = StepCancelled(
            run_id=command.run_id,
            step=command.step,
            attempt=command.attempt,
            reason=command.reason,
            capability_sha256=hashed(self._capability(command)),
        )
        self._bus.publish_nowait(subjects.CANCEL_FILTER, encoded(cancelled))

    def _failed(self, command: Dispatch, error: Exception) -> None:
        self.end(command, refusal_of(command.run, command.step, error), _result_id(command))

    def _publish_alone(self, command: Dispatch) -> None:
        """Publish a step again that nobody took from its bundle."""
        command.again = True
        if not self.refused(command):
            self.publish(command, command.latest_start_at_ms - now_ms(), 0.0)

    def _may_be_repeated(self, command: Dispatch) -> bool:
        """Tell whether a worker may already have a step that is handed out again: in a bundle,
        which the stream does not know of, or because the stream may have lost it."""
        return command.type not in CALL_MODELS or self._may_be_lost()

    def _may_be_lost(self) -> bool:
        """Tell whether NATS was away lately: the server that comes back may have lost a step that a
        worker has, and would take its repeat for a new one."""
        if self._losses != self._bus.losses:
            self._losses, self._lost_until_ms = self._bus.losses, monotonic_ms() + LOST_MS
        return monotonic_ms() < self._lost_until_ms

    def _capability(self, command: CancelAttempt) -> str | None:
        if self._capabilities is None or command.dispatched is None:
            return None
        tenant, at_ms = command.dispatched
        return self._capabilities.of_attempt(
            tenant, command.run_id, command.step, command.attempt, at_ms
        )


def _result_id(command: Dispatch) -> str:
    """Return the id under which the end of an attempt that does not go out is posted."""
    msg_id = ids.result_id(command.attempt_id, command.dispatched_at_ms)
    return ids.capable(msg_id, command.capability)
