"""The objects that all node types of one worker share."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hocket.kit.blobs import BlobStore
from hocket.kit.nats.bus import Bus
from hocket.workers.runtime.execution.alarms import Alarms
from hocket.workers.runtime.intake.isolation import Isolation
from hocket.workers.runtime.intake.probation import Probation
from hocket.workers.runtime.journal.store import JournalStore
from hocket.workers.runtime.lines.sender import LineSender
from hocket.workers.runtime.models.calls import Calls, ModelCalls
from hocket.workers.runtime.transport.acks import Acks
from hocket.workers.runtime.transport.cancellations import Cancellations
from hocket.workers.runtime.transport.held_steps import HeldSteps
from hocket.workers.runtime.transport.outbox import Outbox
from hocket.workers.runtime.transport.probation_records import ProbationRecords
from hocket.workers.runtime.values.large_values import LargeValues

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Parts:
    """The shared parts of a worker. `worker` is the worker's name."""

    worker: str
    bus: Bus
    acks: Acks
    outbox: Outbox
    alarms: Alarms
    calls: Calls
    cancellations: Cancellations
    isolation: Isolation
    probation: Probation
    held: HeldSteps
    large_values: LargeValues
    over_nats: ModelCalls
    journals: JournalStore
    lines: LineSender


def parts(
    bus: Bus,
    worker: str,
    *,
    blobs: BlobStore | None,
    calls: Calls | None,
    held: HeldSteps,
    slots_changed: "Callable[[], None]",
) -> Parts:
    """Make the parts of a worker. Model calls go to `calls` if given, and otherwise over NATS;
    `slots_changed` is called whenever the announced slots have changed."""
    acks = Acks(bus)
    isolation = Isolation(slots_changed)
    over_nats = ModelCalls(bus)
    return Parts(
        worker,
        bus,
        acks,
        Outbox(bus, acks),
        Alarms(),
        calls or over_nats,
        Cancellations(),
        isolation,
        Probation(ProbationRecords(bus), acks, isolation, held),
        held,
        LargeValues(blobs),
        over_nats,
        JournalStore(bus),
        LineSender(bus, worker),
    )
