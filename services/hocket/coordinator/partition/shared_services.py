"""What all partitions of a coordinator work with."""

from dataclasses import dataclass, field

from hocket.coordinator.dispatch.dispatcher import Dispatcher
from hocket.coordinator.dispatch.workload import Load
from hocket.coordinator.intake.task_trimmer import TaskTrimmer
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.partition.turns import Turns
from hocket.coordinator.storage.committer import Committer
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_catalog import Catalog
from hocket.coordinator.storage.step_cache import StepCache
from hocket.coordinator.storage.store import Store
from hocket.kit.access.key_book import KeyBook
from hocket.kit.nats.bus import Bus
from hocket.schemas.capabilities import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedServices:
    """What all partitions of a coordinator share. `partitions`: how many the installation has;
    `key_book`: which keys may see outputs."""

    partitions: int
    bus: Bus
    store: Store
    catalog: Catalog
    durations: Durations
    committer: Committer
    step_cache: StepCache
    dispatcher: Dispatcher
    load: Load
    metrics: CoordinatorMetrics
    capabilities: Capabilities | None = None
    asks_for_seals: bool = True
    usage_seals: Capabilities | None = None
    key_book: KeyBook | None = None
    turns: Turns = field(default_factory=Turns)
    task_trimmer: TaskTrimmer | None = None

    def task_done(self, ack_subject: str) -> None:
        """Acknowledge a task that is committed."""
        (self.bus.ack if self.task_trimmer is None else self.task_trimmer.done)(ack_subject)
