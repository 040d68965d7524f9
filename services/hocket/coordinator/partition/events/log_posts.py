"""What coordinators post to the logs: sealed, under message ids that nobody can know in advance.

The results of attempts have no seal but the capability of their attempt
(`core/run/constructs/results.py`): workers have no key. What runs are charged (`RunCharged`) comes
from gateways, which seal it with the key of usage records, checked by `usage_seals`. Everything
else in a log is posted by coordinators and by the REST service. Without capabilities nothing is
sealed, and no seal is required; `asks` is off while a release that does not know seals is being
replaced.
"""

from asyncio import Future

from hocket.coordinator.partition.events.log_reader import LogMessage
from hocket.kit.nats.bus import RESERVE_BYTES, Bus
from hocket.kit.nats.connection.post_answers import PubAck
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.messages import (
    AttemptFinished,
    AttemptReturned,
    AttemptsFinished,
    RunCharged,
    RunEvent,
    encoded,
)

_BY_WORKERS = (AttemptFinished.kind, AttemptsFinished.kind, AttemptReturned.kind)


class LogPosts:
    """Seals what coordinators post to logs, and checks what is read there. `partitions`: how many
    the installation has."""

    def __init__(
        self,
        bus: Bus,
        capabilities: Capabilities | None,
        *,
        partitions: int,
        asks: bool = True,
        usage_seals: Capabilities | None = None,
    ) -> None:
        self._bus = bus
        self._partitions = partitions
        self._capabilities = capabilities
        self._asks = asks
        self._usage_seals = usage_seals

    @property
    def max_bytes(self) -> int:
        """The largest event that can be posted, with its headers."""
        return self._bus.nc.max_payload - RESERVE_BYTES

    def post(
        self, partition: int, kind: str, body: bytes, *, msg_id: str | None = None
    ) -> "Future[PubAck]":
        """Post an event to a partition's log."""
        headers = None
        if self._capabilities is not None:
            headers = {SEAL: self._capabilities.seal(kind, body)}
            msg_id = None if msg_id is None else self._capabilities.id_of(msg_id)
        return self._bus.publish_durable(
            subjects.log(partition, kind), body, msg_id=msg_id, headers=headers
        )

    def post_to_run(self, event: RunEvent, msg_id: str | None = None) -> "Future[PubAck]":
        """Post an event to the log of its run's partition."""
        partition = ids.partition_of(event.run_id, self._partitions)
        return self.post(partition, event.kind, encoded(event), msg_id=msg_id)

    def is_sealed(self, message: LogMessage) -> bool:
        """Tell whether a message is from a sender that may post its kind, as far as seals are
        required."""
        if self._capabilities is None or not self._asks or message.kind in _BY_WORKERS:
            return True
        seals = self._usage_seals if message.kind == RunCharged.kind else self._capabilities
        return seals is not None and seals.is_sealed(message.seal, message.kind, message.body)
