"""The life of a process: settings, telemetry, signals, health, and a bounded shutdown.

`run(name, main)` is the body of every `__main__`. States: starting, serving (`main` runs), leaving
(after SIGTERM or SIGINT; a process with a door for clients goes on for `drain_delay_s`, or until it is
asked again), stopping (`stopping` is set; `main` has STOP_TIMEOUT_S to return, or as long as it
requested with `needs_to_stop`). From leaving on, `/readyz` answers 503. An exception from `main` is
logged and makes the exit code 1; a HocketError is logged without its traceback, because its text says
enough. Without memory, the process ends at once (`memory.py`).
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg
import structlog
import uvloop
from prometheus_client import Gauge, generate_latest

from hocket.kit.child_processes.signal_handlers import on_signal
from hocket.kit.compiled import check_compiled
from hocket.kit.logs import telemetry
from hocket.kit.logs.hidden_secrets import hide
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.database import connect_pool, monitor_database
from hocket.kit.process import process_secrets
from hocket.kit.process import settings as process_settings
from hocket.kit.process.health_server import HealthServer, write_facts
from hocket.kit.process.limits import disk_space, gc_tuning, memory
from hocket.kit.process.limits.disk_space import MIB, DiskSpace
from hocket.kit.process.settings import Settings
from hocket.kit.process.task_stop import ended, stop_tasks
from hocket.schemas.errors import HocketError

STOP_TIMEOUT_S = 25.0
"""Shorter than the 30 s that Kubernetes allows by default."""
LEAVING = "the process is shutting down"
"""Why `/readyz` answers 503 from the stop signal on."""


@dataclass
class Health:
    """The last report of each component of a process, which is ready when all are well."""

    components: dict[str, tuple[bool, str]] = field(default_factory=dict)
    degraded: set[str] = field(default_factory=set)
    """Components that work only partly, or with an old configuration: ready, but not well."""

    def report(self, component: str, ok: bool, detail: str = "", *, degraded: bool = False) -> None:
        """Set the state of a component."""
        self.components[component] = (ok, detail)
        (self.degraded.add if degraded else self.degraded.discard)(component)

    @property
    def ready(self) -> bool:
        return all(ok for ok, _ in self.components.values())

    def as_json(self) -> dict[str, Any]:
        """Return readiness and components as plain data."""
        parts = {
            name: {"ok": ok, "detail": detail, "degraded": name in self.degraded}
            for name, (ok, detail) in self.components.items()
        }
        return {"ready": self.ready, "components": parts}


@dataclass
class Service:
    """What `main` gets: its settings, its tools, and the event that asks it to stop."""

    name: str
    settings: Settings
    telemetry: telemetry.Telemetry
    stopping: asyncio.Event
    health: Health
    log: Any
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The secret variables that were handed to this process; its environment may no longer have them."""
    start: str = "started"
    """The component of its health that says whether it has started."""
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the stop signal, before `stopping`."""
    disk: DiskSpace = field(init=False)
    """The disk of the data folder; `low` while it has no room for new work."""
    _stop_timeouts_s: list[float] = field(default_factory=lambda: [STOP_TIMEOUT_S])
    _closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    _buses: list[Bus] = field(default_factory=list)
    _pulses: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.settings
        self.disk = DiskSpace(settings.data_dir, min_free_bytes=settings.min_free_disk_mib * MIB)

    def part(self, name: str) -> "Service":
        """Return the object for one of several services in this process. Everything is shared except its
        name, its start and its `stopping`, which the caller sets."""
        start = f"{name} started"
        self.health.report(start, False, "starting")
        return replace(self, name=name, start=start, stopping=asyncio.Event())

    @property
    def stop_timeout_s(self) -> float:
        """How long `main` may take to return after it is asked to stop."""
        return max(self._stop_timeouts_s)

    def needs_to_stop(self, timeout_s: float) -> None:
        """Request at least this long to stop."""
        self._stop_timeouts_s.append(timeout_s)

    async def bus(self, *, window: int = 4096, prompt: bool = False) -> Bus:
        """Connect to NATS; `look` reports the health of the connection."""
        bus = await Bus.connect(
            self.settings.nats_url, name=f"hocket {self.name}", window=window, prompt=prompt
        )
        self._closers.append(bus.close)
        self._buses.append(bus)
        return bus

    async def access_bus(self) -> Bus:
        """Connect to NATS as the user that decides which keys may connect. The loss of this connection
        does not make the process unhealthy, because other processes of its kind answer."""
        url = self.settings.nats_access_url
        assert url is not None, "the caller has looked"
        bus = await Bus.connect(url.get_secret_value(), name=f"hocket {self.name} access")
        self._closers.append(bus.close)
        return bus

    async def pool(self, size: int) -> asyncpg.Pool:
        """Connect to Postgres, with at most `size` connections; a task reports whether it answers."""
        pool = await connect_pool(self.settings.database_url, size=size, name=self.name)
        if not self._pulses:
            self._pulses.append(asyncio.create_task(monitor_database(pool, self.health.report)))

        async def close() -> None:
            try:
                await asyncio.wait_for(pool.close(), 2)
            except TimeoutError:
                pool.terminate()

        self._closers.append(close)
        return pool

    def started(self) -> None:
        """Report that the process has started; it is not ready before."""
        gc_tuning.settle()
        self.health.report(self.start, True)

    def look(self) -> None:
        """Update the health with what is known locally: the state of the connections and the disk."""
        if self._buses:
            connected = all(bus.connected for bus in self._buses)
            stalled = next(filter(None, (bus.publisher.stalled for bus in self._buses)), "")
            detail = stalled if connected else "away"
            self.health.report("nats", connected and not stalled, detail)
        if self.settings.min_free_disk_mib:
            self.health.report(disk_space.COMPONENT, not self.disk.low, self.disk.reason)

    async def close(self) -> None:
        for pulse in self._pulses:
            pulse.cancel()
        for closer in reversed(self._closers):
            await closer()


def run(
    name: str,
    main: Callable[[Service], Awaitable[None]],
    *,
    hide_secrets: Collection[str] = (),
    has_door: bool = False,
) -> None:
    """Run a process to its end and exit with its code. `hide_secrets` are the variables that are removed
    from its environment before `main` runs; "*" means all secrets that were handed over. `has_door`:
    clients connect to it, so it goes on for `drain_delay_s` until proxies know that it is leaving."""
    secrets = process_secrets.taken()
    os.environ.update(secrets)
    try:
        check_compiled()
        settings = process_settings.read()
    except HocketError as error:
        sys.exit(f"hocket {name}: {error}")  # logging is not set up yet
    hide(value for key, value in secrets.items() if key not in process_secrets.URLS)
    for key in secrets if "*" in hide_secrets else hide_secrets:
        os.environ.pop(key, None)
    delay_s = settings.drain_delay_s if has_door else 0.0
    code = uvloop.run(ended(_serve(name, settings, main, secrets, delay_s)))
    sys.exit(code)


async def _serve(
    name: str,
    settings: Settings,
    main: Callable[[Service], Awaitable[None]],
    secrets: Mapping[str, str],
    delay_s: float,
) -> int:
    service = Service(
        name=name,
        settings=settings,
        telemetry=telemetry.setup(name, settings),
        stopping=asyncio.Event(),
        health=Health({"started": (False, "starting")}),
        log=structlog.get_logger(f"hocket.{name}"),
        secrets=secrets,
    )
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(memory.note)
    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(number, _leave, service, delay_s)
    try:
        with _health_served(service):
            await _until_stopped(service, main)
    except HocketError as error:
        service.log.error("service_failed", code=error.code, reason=str(error))
        return 1
    except Exception:
        service.log.exception("service_failed")
        return 1
    finally:
        await service.close()
    service.log.info("service_stopped")
    return 0


def _leave(service: Service, delay_s: float) -> None:
    """Stop being ready, and stop after `delay_s`; at once if asked again."""
    if delay_s > 0 and not service.leaving.is_set():
        service.log.info("service_leaving", delay_s=delay_s)
        asyncio.get_running_loop().call_later(delay_s, service.stopping.set)
    else:
        service.stopping.set()
    service.leaving.set()


async def _until_stopped(service: Service, main: Callable[[Service], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(main(service))
    stop = asyncio.create_task(service.stopping.wait())
    await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if not task.done():
        service.log.info("service_stopping")
        await asyncio.wait({task}, timeout=service.stop_timeout_s)
    if not task.done():
        service.log.warning("service_stop_timed_out", timeout_s=service.stop_timeout_s)
        if await stop_tasks([task]) and not task.cancelled():
            task.result()
        return
    await task


@contextmanager
def _health_served(service: Service) -> Iterator[None]:
    """Serve health and metrics inside the block; a file in the data folder holds the address."""
    settings = service.settings
    if settings.health_port < 0:
        yield
        return
    well = Gauge(
        "hocket_component_ok",
        "Whether a component of this process is healthy, as reported by `/readyz`: 1 or 0.",
        ["component"],
        registry=service.telemetry.registry,
    )
    pages = {
        "/healthz": lambda: (200, "application/json", b'{"alive": true}'),
        "/readyz": lambda: _readiness(service),
        "/metrics": lambda: _metrics(service, well),
    }
    server = HealthServer(settings.health_host, settings.health_port, pages)
    server.start()
    fact = write_facts(settings.data_dir / "run", service.name, server.url)
    try:
        yield
    finally:
        fact.unlink(missing_ok=True)
        server.close()


def _readiness(service: Service) -> tuple[int, str, bytes]:
    service.look()
    health = service.health.as_json()
    if service.leaving.is_set() or service.stopping.is_set():
        health |= {"ready": False, "reason": LEAVING}
    return 200 if health["ready"] else 503, "application/json", json.dumps(health).encode()


def _metrics(service: Service, well: Gauge) -> tuple[int, str, bytes]:
    service.look()
    for component, (ok, _) in service.health.components.items():
        well.labels(component).set(ok)
    return 200, "text/plain", generate_latest(service.telemetry.registry)
