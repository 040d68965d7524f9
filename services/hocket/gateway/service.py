"""The gateway process: routes, the door, booking, reload, drain.

States: starting (routes are read; a bad configuration ends the process with its field and cure),
serving, draining (SIGTERM: no new calls, those in flight end within a bound, their records are
acknowledged), stopped. SIGHUP reads the configuration again; a bad one is reported and the old one
stays. While NATS is away calls at backends go on, and replies wait until their record is acknowledged.
"""

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog

from hocket.gateway.calls import Calls, Routes
from hocket.gateway.core.configuration import built_in_table, parse
from hocket.gateway.metrics import GatewayMetrics
from hocket.gateway.nats_door import MAX_CALLS, NatsDoor
from hocket.gateway.served import retire_missing, serve
from hocket.kit import clock, config
from hocket.kit.bus import Bus, PublishRefused
from hocket.kit.lifecycle import Service
from hocket.kit.streams import ensure_streams
from hocket.schemas import subjects
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import UsageRecord

DRAIN_MS = 15_000.0
FLUSH_MS = 5_000.0
"""Both together stay below the time that `kit.lifecycle` gives a stopping process."""
WATCH_MS = 1_000.0
REFUSED_PAUSE_MS = 1_000.0

log = structlog.get_logger()


async def main(service: Service) -> None:
    """Serve calls until the service is asked to stop."""
    settings = service.settings
    metrics = GatewayMetrics(service.telemetry.registry)
    bus = await service.bus()
    await ensure_streams(bus, replicas=settings.stream_replicas)
    booking = Booking(bus, metrics)
    routes = await read_routes(settings.config)
    service.health.report("routing", True, f"{len(routes.table.models)} models")
    calls = Calls(routes, now_ms=clock.now_ms, book=booking.book)
    door = NatsDoor(bus, calls, metrics, exporting=service.telemetry.exporting, max_calls=MAX_CALLS)
    reload = Reload(service, calls, settings.config)
    with reload.on_hangup():
        await door.open()
        service.started()
        log.info("gateway_serving", models=calls.routes.table.names())
        await _watched(service, bus)
        log.info("gateway_draining", drain_ms=DRAIN_MS)
        await door.close(drain_ms=DRAIN_MS, flush_ms=FLUSH_MS)
    await retire_missing(calls.routes.served, {})


class Booking:
    """Makes usage records durable: `USAGE` has them when `book` returns."""

    def __init__(self, bus: Bus, metrics: GatewayMetrics) -> None:
        self._bus = bus
        self._metrics = metrics

    async def book(self, record: UsageRecord) -> None:
        """Publish a record and wait for its acknowledgement, through outages, for as long as we live."""
        self._metrics.observe(record)
        self._metrics.unbooked.inc()
        payload = record.model_dump_json().encode()
        try:
            while True:
                await self._bus.room()
                try:
                    await self._bus.post(subjects.USAGE_SUBJECT, payload, msg_id=record.call_id)
                    return
                except PublishRefused as error:
                    log.error("usage_refused", call_id=record.call_id, reason=str(error))
                    await asyncio.sleep(REFUSED_PAUSE_MS / 1000)
        finally:
            self._metrics.unbooked.dec()


async def _watched(service: Service, bus: Bus) -> None:
    """Report the health of the bus until the service is asked to stop."""
    while not service.stopping.is_set():
        service.health.report("nats", bus.connected, "" if bus.connected else "away")
        with suppress(TimeoutError):
            await asyncio.wait_for(service.stopping.wait(), WATCH_MS / 1000)


class Reload:
    """Reads the configuration again on SIGHUP; a bad one changes nothing."""

    def __init__(self, service: Service, calls: Calls, path: Path | None) -> None:
        self._service = service
        self._calls = calls
        self._path = path
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def on_hangup(self) -> Iterator[None]:
        """Listen to SIGHUP inside the block."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._start)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    def _start(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self.read(), name="reload")

    async def read(self) -> None:
        """Replace the routes, or say why not."""
        before = self._calls.routes
        try:
            routes = await read_routes(self._path, before)
        except HocketError as error:
            log.warning("routing_rejected", path=str(self._path), reason=str(error))
            self._service.health.report("routing", True, f"old routes; reload refused: {error}")
            return
        self._calls.routes = routes
        self._calls.places.wake_all()
        await retire_missing(before.served, routes.served)
        log.info("routing_reloaded", models=routes.table.names())
        self._service.health.report("routing", True, f"{len(routes.table.models)} models")


async def read_routes(path: Path | None, before: Routes | None = None) -> Routes:
    """Return the routes of a configuration file, or the built-in ones; raise RoutingInvalid."""
    table = built_in_table() if path is None else parse(_section(config.load(path)), os.environ)
    for name in table.without_effect:
        log.warning("routing_field_without_effect", field=name)
    for spec in table.backends():
        if not spec.prices.priced:
            log.warning("backend_unpriced", backend=spec.name)
    served = await serve(table, before.served if before else {}, clock.now_ms)
    return Routes(table, served)


def _section(content: Mapping[str, Any]) -> Any:
    """Return the routing part of a configuration; a LiteLLM file is one as a whole."""
    if "models" in content or "model_list" not in content:
        return content.get("models")
    return {name: content[name] for name in ("model_list", "router_settings") if name in content}
