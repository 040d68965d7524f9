"""News about replicas: runs expected, from coordinators; replicas used and missed, among gateways."""

import asyncio
from collections.abc import Callable, Sequence

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.warming.replica_usage import ReplicaUsage
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.messages import ReplicasUsed, RunsExpected

USED_S = 1.0
MAX_MISSED = 256

log = structlog.get_logger()
_reporting = Reporting()


class ReplicaNews:
    """Receives and sends news between `open` and `close`.

    `expect` is called with expected runs, and `used` with reports of other gateways. The leading
    gateway is told which replicas this one uses and misses.
    """

    def __init__(
        self,
        bus: Bus,
        membership: Membership,
        usage: ReplicaUsage,
        *,
        now_ms: Callable[[], float],
        expect: Callable[[RunsExpected], None],
        used: Callable[[ReplicasUsed], None],
    ) -> None:
        self._bus = bus
        self._membership = membership
        self._usage = usage
        self._now_ms = now_ms
        self._expect = expect
        self._used = used
        self._missed: dict[str, None] = {}
        self._subscriptions: list[Subscription] = []
        self._publishing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Subscribe, and start reporting."""
        self._subscriptions = [
            await self._bus.subscribe(subjects.RUNS_EXPECTED, self._on_runs),
            await self._bus.subscribe(subjects.REPLICAS_USED, self._on_used),
        ]
        self._publishing = asyncio.create_task(self._publish_usage(), name="replicas-used")

    async def close(self) -> None:
        """Unsubscribe, and stop reporting."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        if self._publishing is not None:
            await stop_tasks([self._publishing])

    def missed(self, cold: Sequence[str]) -> None:
        """Report cold replicas that a call found, unless just reported."""
        if len(self._missed) < MAX_MISSED and not self._missed.keys() >= set(cold):
            self._missed.update(dict.fromkeys(cold))
            self._publish_used()

    async def _on_runs(self, message: Msg) -> None:
        try:
            self._expect(RunsExpected.model_validate_json(message.data))
        except ValidationError as error:
            if count := _reporting.due("runs_expected_malformed"):
                log.warning("runs_expected_malformed", reason=str(error)[:500], count=count)

    async def _on_used(self, message: Msg) -> None:
        try:
            used = ReplicasUsed.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("replicas_used_malformed"):
                log.warning("replicas_used_malformed", reason=str(error)[:500], count=count)
            return
        if used.gateway != self._membership.name:
            self._used(used)

    async def _publish_usage(self) -> None:
        while True:
            await asyncio.sleep(USED_S)
            if self._usage.is_managed and not self._membership.leads:
                self._publish_used()

    def _publish_used(self) -> None:
        used = ReplicasUsed(
            gateway=self._membership.name,
            busy_ms=self._usage.take_all(self._now_ms()),
            in_use=self._usage.in_use(),
            missed=tuple(self._missed),
        )
        if used.busy_ms or used.in_use or used.missed:
            self._bus.publish_nowait(subjects.REPLICAS_USED, used.model_dump_json().encode())
        self._missed.clear()
