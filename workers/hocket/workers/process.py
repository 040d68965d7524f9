"""The worker process: its configuration, its resources, the worker, and the shutdown.

States: starting (an invalid configuration ends the process, naming the field and the cure), running,
draining (after SIGTERM: nothing is fetched, running steps get `workers.drain_s` to finish), stopped. If
functions that do not end hold more than half of the slots, the worker drains on its own and exits with
an error, so that its supervisor restarts it.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence

from hocket.kit.process import config
from hocket.kit.process.lifecycle import Service
from hocket.workers.blob_stores import opened_blobs
from hocket.workers.configuration import STOP_S, parse
from hocket.workers.errors import WorkerOverrun
from hocket.workers.nodes.opened_resources import opened_resources
from hocket.workers.nodes.registry import handlers as node_handlers
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.watchdog import LoopWatchdog
from hocket.workers.runtime.execution.worker import Worker
from hocket.workers.runtime.models.calls import Calls
from hocket.workers.runtime.transport.held_steps import HeldSteps


def serve(
    types: Sequence[str],
    calls: Calls | None = None,
    handlers: str | None = None,
    drain_s: float | None = None,
) -> Callable[[Service], Awaitable[None]]:
    """Return the main function of a worker process for these node types (`python@gpu` for one queue of a
    type). Model calls go to `calls` if given, and otherwise over NATS to whichever gateway takes them.
    `handlers` replaces HOCKET_HANDLERS, and `drain_s` replaces `workers.drain_s`."""

    async def main(service: Service) -> None:
        settings = service.settings
        if handlers is not None:
            settings = settings.model_copy(update={"handlers": handlers})
        sections = config.load(settings.config)
        configuration = parse(sections)
        slots = configuration.slots(types)
        draining_s = configuration.workers.drain_s if drain_s is None else drain_s
        service.needs_to_stop(draining_s + STOP_S)
        bus = await service.bus()
        async with (
            opened_resources(service, configuration, settings, sections, types) as resources,
            opened_blobs(service, configuration.blobs, settings.blob_days) as blobs,
        ):
            worker = Worker(
                bus,
                node_handlers(types, resources),
                slots,
                name=f"{socket.gethostname()}-{os.getpid()}",
                meters=Meters(service.telemetry.registry),
                blobs=blobs,
                ack_wait_s=configuration.workers.ack_wait_s,
                calls=calls,
                report=service.health.report,
                overrun_s=configuration.workers.overrun_s,
                held=HeldSteps(settings.data_dir / "workers"),
            )
            watchdog = LoopWatchdog(configuration.workers.blocked_s)
            try:
                await worker.start()
                watchdog.start()
                service.started()
                await _either(service.stopping, worker.overrun)
                await worker.drain(draining_s)
            finally:
                watchdog.stop()
        if worker.overrun.is_set() and not service.stopping.is_set():
            raise WorkerOverrun

    return main


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
