"""Taking over a partition: its former owner is fenced, its objects are assembled, and what is in
flight is loaded, handed out again, and announced if it may not have been."""

from collections.abc import Callable

import structlog

from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.partition.command_executor import CommandExecutor
from hocket.coordinator.partition.decision_recorder import DecisionRecorder
from hocket.coordinator.partition.events.event_application import EventApplication
from hocket.coordinator.partition.events.event_handler import EventHandler
from hocket.coordinator.partition.partition import Partition
from hocket.coordinator.partition.runs.failed_runs import FailedRuns
from hocket.coordinator.partition.runs.run_acceptance import RunAcceptance
from hocket.coordinator.partition.runs.run_loader import RunLoader
from hocket.coordinator.partition.shared_services import SharedServices
from hocket.coordinator.partition.tenure_context import TenureContext
from hocket.coordinator.partition.wake_ups import WakeUps
from hocket.coordinator.storage.pending_changes import Ended
from hocket.coordinator.storage.store import Offset
from hocket.kit.process.clock import monotonic_ms

log = structlog.get_logger(__name__)


async def take_over(
    number: int,
    services: SharedServices,
    owner: str,
    *,
    cause: str = "start",
    lost: Callable[[], None] = lambda: None,
) -> Partition:
    """Take over a partition and continue it. `lost` is called when another coordinator takes it
    from us."""
    begun_ms = monotonic_ms()
    offset = await services.store.acquire(number, owner)
    fenced_ms = monotonic_ms()
    partition = assembled(number, services, offset=offset, lost=lost)
    try:
        await partition.go_on(offset.told.told_ms)
    except BaseException:
        partition.end()
        raise
    took_ms = monotonic_ms() - begun_ms
    services.metrics.taken(cause, took_ms)
    log.info(
        "partition_owned",
        partition=number,
        cause=cause,
        epoch=offset.epoch,
        applied_seq=offset.applied_seq,
        runs=partition.in_flight,
        fence_ms=round(fenced_ms - begun_ms, 1),
        latency_ms=round(took_ms, 1),
    )
    return partition


def assembled(
    number: int,
    services: SharedServices,
    *,
    offset: Offset,
    lost: Callable[[], None] = lambda: None,
) -> Partition:
    """Return a partition whose former owner left `offset` in Postgres, with nothing loaded yet."""

    def refused(run: Run, error: Exception, late: bool) -> Ended | None:
        return failed.refused(run, error, late)

    context = TenureContext.open(number, services, offset=offset, lost=lost, refused=refused)
    wake_ups = WakeUps(context)
    executor = CommandExecutor(context, wake_ups)
    recorder = DecisionRecorder(context, executor)
    failed = FailedRuns(context, executor, recorder)
    loader = RunLoader(context, recorder, failed)
    application = EventApplication(
        context, RunAcceptance(context, recorder), loader, recorder, failed
    )
    return Partition(context, EventHandler(context, application), loader, wake_ups)
