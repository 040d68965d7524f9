"""`hocket-worker module:worker`: a process that runs a worker until SIGTERM.

States: waiting for NATS and the platform (SIGTERM or SIGINT ends the process at once); running; draining
(after SIGTERM or SIGINT: nothing is fetched, running steps get `--drain-s` to finish, the same signal
again exits at once); stopped. If functions that do not end hold more than half of the slots, the worker
drains on its own and exits with code 1, so that its supervisor restarts it.
"""

import argparse
import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from hocket.kit.child_processes.signal_handlers import on_signal
from hocket.kit.logs.hidden_secrets import hide, line_without_secrets, without_secrets
from hocket.kit.logs.run_lines import (
    LineHandler,
    RedactingFormatter,
    add_run,
    keeping,
    whatever_it_holds,
)
from hocket.kit.nats.errors import BusUnavailable
from hocket.kit.nats.server_urls import passwords_of
from hocket.kit.process.limits import memory
from hocket.kit.process.task_stop import ended, stop_tasks
from hocket.schemas.errors import HocketError
from hocket.worker.connection import place_of
from hocket.worker.errors import WorkerNotFound
from hocket.worker.reload import keep_reloading
from hocket.worker.worker import Worker
from hocket.workers.errors import WorkerOverrun
from hocket.workers.runtime.execution.watchdog import BLOCKED_S, LoopWatchdog
from hocket.workers.runtime.execution.worker import DRAIN_S

MAX_DRAIN_S = 3_600.0
LEVELS = ("debug", "info", "warning", "error")
log = structlog.get_logger("hocket.worker")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    given = _parser().parse_args(arguments)
    if given.reload:
        sys.exit(keep_reloading(Path.cwd(), _without_reload(arguments)))
    try:
        worker = worker_of(given.worker)
        place = place_of(given.nats, given.blobs)
        _configure_logs(place.nats_url)
        code = asyncio.run(ended(_serve(worker, given)))
    except HocketError as error:
        sys.exit(f"hocket-worker: {error}")
    sys.exit(code)


def worker_of(named: str) -> Worker:
    """Import the worker that `module:name` names, or raise WorkerNotFound. The current folder is
    searched first, as with `python -m`."""
    module, colon, name = named.partition(":")
    if not (module and colon and name):
        raise WorkerNotFound(named=named, reason="it has no `:`")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise WorkerNotFound(named=named, reason=f"there is no module `{module}` here") from None
    for part in name.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Worker):
        return found
    reason = f"`{module}` has no `{name}`" if found is None else f"it is a {type(found).__name__}"
    raise WorkerNotFound(named=named, reason=reason)


async def _serve(worker: Worker, given: argparse.Namespace) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(memory.note)
    seen: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(number, _stop, stopping, seen, number)
    entered = asyncio.Event()
    serving = asyncio.create_task(_run(worker, given, stopping, entered))
    begun = asyncio.create_task(_first(stopping, entered))
    await asyncio.wait({serving, begun}, return_when=asyncio.FIRST_COMPLETED)
    begun.cancel()
    if entered.is_set() or serving.done():
        return await serving
    await stop_tasks({serving})  # it waits for NATS, or for the platform
    return 0


async def _run(
    worker: Worker, given: argparse.Namespace, stopping: asyncio.Event, entered: asyncio.Event
) -> int:
    """Run steps until `stopping`, and return the process's exit code; `entered` tells that the worker
    has everything that it needs."""
    watchdog = LoopWatchdog(given.blocked_s)
    try:
        async with worker.run(
            nats_url=given.nats,
            blobs=given.blobs,
            name=given.name,
            queues=given.queues,
            drain_s=given.drain_s,
        ) as running:
            entered.set()
            watchdog.start()
            await _first(stopping, running.overrun)
    except BusUnavailable as error:
        log.error("nats_unavailable", reason=str(error))
        return 1
    finally:
        watchdog.stop()
    if running.overrun.is_set() and not stopping.is_set():
        log.error("worker_overrun", reason=str(WorkerOverrun()))
        return 1
    return 0


def _stop(stopping: asyncio.Event, seen: set[int], number: int) -> None:
    """Drain on a first signal, and exit at once on the same one again. Ctrl-C reaches this process and
    its supervisor (`--reload`), which then sends SIGTERM: that asks for the same thing."""
    if number in seen:
        os._exit(1)
    seen.add(number)
    stopping.set()


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hocket-worker", description="Run the node types of a worker until SIGTERM."
    )
    parser.add_argument("worker", help="module:worker, where the module has `worker = Worker()`")
    parser.add_argument(
        "--nats",
        help="URL of NATS; defaults to NATS_URL or NATS_URL_FILE, or to the platform on this machine",
    )
    parser.add_argument(
        "--blobs", type=_folder, help="folder for large values; defaults to HOCKET_BLOBS_DIR"
    )
    parser.add_argument(
        "--name", help="name of this worker; by default derived from host and process"
    )
    parser.add_argument(
        "--queues",
        type=lambda text: [name.strip() for name in text.split(",") if name.strip()],
        default=(),
        help="queues whose steps it takes, comma-separated; `default` is each type's own",
    )
    parser.add_argument(
        "--drain-s",
        type=_between(0.0, MAX_DRAIN_S),
        default=DRAIN_S,
        help="seconds that running steps may continue after SIGTERM",
    )
    parser.add_argument(
        "--blocked-s",
        type=_between(0.0, 3_600.0),
        default=BLOCKED_S,
        help="end the process if its event loop is blocked for this many seconds; 0: never",
    )
    parser.add_argument("--reload", action="store_true", help="restart when a file changes")
    return parser


def _folder(text: str) -> Path:
    """Return the folder that an option names; an empty text would be the current one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; write `.` for the current folder")
    return Path(text)


def _between(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"use {least:g} to {most:g}")
        return value

    return number


def _without_reload(arguments: Sequence[str] | None) -> list[str]:
    given = list(sys.argv[1:] if arguments is None else arguments)
    return [argument for argument in given if argument != "--reload"]


def _configure_logs(nats_url: str) -> None:
    """Log JSON lines, or readable lines on a terminal, without the secrets of the NATS URL."""
    hide(passwords_of(nats_url))
    level = os.environ.get("HOCKET_LOG_LEVEL", "info").lower()
    level = level if level in LEVELS else "info"
    form = os.environ.get("HOCKET_LOG_FORMAT") or ("console" if sys.stdout.isatty() else "json")
    renderer: Any = (
        structlog.dev.ConsoleRenderer()
        if form == "console"
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            add_run,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            keeping(without_secrets),
            whatever_it_holds(renderer),
            line_without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        cache_logger_on_first_use=True,
    )
    shown = logging.StreamHandler(sys.stdout)
    shown.setFormatter(RedactingFormatter(without_secrets, logging.BASIC_FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[shown, LineHandler(without_secrets)])


if __name__ == "__main__":
    main()
