"""A worker and a gateway in one process: `python -m hocket.cli.local.inline_gateway`, with the options
of `python -m hocket.workers`.

The worker's model calls go to the gateway beside it, without a message; everybody else's come over NATS
and HTTP as to any other gateway, and what all gateways share (limits, warmth, experiments) it shares.
On the way down the gateway's doors close at once, the worker drains, and then the gateway.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hocket.gateway import service as gateway
from hocket.gateway.api.inline import InlineCalls
from hocket.gateway.calls.registry import CallRegistry
from hocket.kit.process.capability_key import capabilities_of
from hocket.kit.process.lifecycle import Service, run
from hocket.kit.process.process_secrets import OWN, start_without_secrets
from hocket.workers import process as worker
from hocket.workers.__main__ import command_line


def main() -> None:
    """Read the command line and run until SIGTERM."""
    start_without_secrets()
    asked = command_line("python -m hocket.cli.local.inline_gateway", __doc__)
    run("worker", serve(asked.types, asked.handlers, asked.drain_s), hide_secrets=OWN)


def serve(
    types: Sequence[str], handlers: str | None = None, drain_s: float | None = None
) -> Callable[[Service], Awaitable[None]]:
    """Return the main function of a process with worker and gateway for these node types."""

    async def both(service: Service) -> None:
        gates, works = service.part("gateway"), service.part("worker")
        service.started()  # the service itself has nothing more to start than its parts
        opened: asyncio.Future[CallRegistry] = asyncio.get_running_loop().create_future()
        drained = asyncio.Event()
        stop = asyncio.create_task(service.stopping.wait())
        serving = gateway.serve(gates, opened.set_result, drained.wait)
        tasks: list[asyncio.Future[None]] = [asyncio.create_task(serving)]
        try:
            await _any(*tasks, opened, stop)
            if opened.done():
                calls = InlineCalls(opened.result(), capabilities_of(service.settings))
                work = worker.serve(types, calls, handlers, drain_s)(works)
                tasks.append(asyncio.ensure_future(work))
                tasks[-1].add_done_callback(lambda _: drained.set())
                await _any(*tasks, stop)
            else:
                drained.set()
            gates.stopping.set()
            works.stopping.set()
            await asyncio.wait(tasks)
        finally:
            stop.cancel()
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    return both


async def _any(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


if __name__ == "__main__":
    main()
