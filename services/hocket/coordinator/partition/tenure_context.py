"""What the objects of one partition share in one tenure, created once when it is taken over."""

from collections.abc import Callable
from dataclasses import dataclass

from hocket.coordinator.core.run.state.run import Owner
from hocket.coordinator.dispatch.demand_publisher import DemandPublisher
from hocket.coordinator.partition.events.log_posts import LogPosts
from hocket.coordinator.partition.events.log_reader import LogPosition
from hocket.coordinator.partition.measurements import Measurements
from hocket.coordinator.partition.runs.run_cache import Runs
from hocket.coordinator.partition.runs.run_notifier import RunNotifier
from hocket.coordinator.partition.runs.task_acknowledgement import TaskAcknowledgement
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.storage.pending_changes import Refused
from hocket.coordinator.storage.source_runs import Origins
from hocket.coordinator.storage.store import Offset
from hocket.coordinator.storage.tenure import Tenure


@dataclass(frozen=True, slots=True, kw_only=True)
class TenureContext:
    """The parts that do not depend on any other part's rules. `number` is the partition's."""

    number: int
    services: SharedServices
    owner: Owner
    tenure: Tenure
    position: LogPosition
    runs: Runs
    posts: LogPosts
    origins: Origins
    demand: DemandPublisher
    measurements: Measurements
    notifier: RunNotifier
    acknowledgement: TaskAcknowledgement

    @classmethod
    def open(
        cls,
        number: int,
        services: SharedServices,
        *,
        offset: Offset,
        lost: Callable[[], None],
        refused: Refused,
    ) -> "TenureContext":
        """Begin a tenure after `offset`, which its former owner left in Postgres. `lost` is called
        when another coordinator takes the partition from us, `refused` for a run whose rows
        Postgres refuses."""
        tenure = services.committer.open(number, offset, lost=lost, refused=refused)
        posts = LogPosts(
            services.bus,
            services.capabilities,
            partitions=services.partitions,
            asks=services.asks_for_seals,
            usage_seals=services.usage_seals,
        )
        return cls(
            number=number,
            services=services,
            owner=Owner(number, offset.epoch, services.capabilities),
            tenure=tenure,
            position=LogPosition(offset.applied_seq, offset.applied_msg_id),
            runs=Runs(),
            posts=posts,
            origins=Origins(services.store, services.catalog),
            demand=DemandPublisher(services.bus),
            measurements=Measurements(number, durations=services.durations, posts=posts),
            notifier=RunNotifier(
                number,
                bus=services.bus,
                store=services.store,
                told=offset.told,
                keep=tenure.write_watermark,
                capabilities=services.capabilities,
                key_book=services.key_book,
            ),
            acknowledgement=TaskAcknowledgement(services.task_done, tenure),
        )
