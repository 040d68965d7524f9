"""The door for operators: loading, unloading and inspecting models on servers that support it.

A BackendControl sent to `hocket.gateway.control` is answered with a BackendControlled. It is not a
call: nothing is booked, and no slot at the backend is taken.
"""

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from hocket.gateway.backends.protocol import Loadable
from hocket.gateway.config.routes import Routes
from hocket.gateway.core.errors import (
    BackendNotLoadable,
    BackendUnknown,
    CallMalformed,
    GatewayFull,
)
from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.checks.bounded import MAX_NAME_CHARS
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.checks.plain_json import shown_text
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import BackendControl, BackendControlled

QUEUE = "gateway"
MAX_ONGOING = 64

log = structlog.get_logger()


class ControlDoor:
    """Takes controls from NATS between `open` and `close`;
    those in progress at `close` are cancelled."""

    def __init__(self, bus: Bus, routes: Callable[[], Routes]) -> None:
        self._bus = bus
        self._routes = routes
        self._subscription: Subscription | None = None
        self._registry: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Subscribe."""
        self._subscription = await self._bus.subscribe(
            subjects.GATEWAY_CONTROL, self._on_control, queue=QUEUE
        )

    async def close(self) -> None:
        """Take no more, and cancel those in progress."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()
        await stop_tasks(self._registry)

    async def _on_control(self, message: Msg) -> None:
        try:
            wanted = BackendControl.model_validate_json(message.data)
        except ValidationError as error:
            self._answer(message, _refused("", _malformed(error)))
            return
        if len(self._registry) >= MAX_ONGOING:
            full = GatewayFull(limit=MAX_ONGOING, component="gateway")
            self._answer(message, _refused(wanted.backend, full))
            return
        task = asyncio.create_task(self._control(message, wanted), name="control")
        self._registry.add(task)
        task.add_done_callback(self._registry.discard)

    async def _control(self, message: Msg, wanted: BackendControl) -> None:
        try:
            done = await self._done(wanted)
        except HocketError as error:
            done = _refused(wanted.backend, error)
        log.info(
            "backend_controlled",
            backend=wanted.backend,
            action=wanted.action,
            error_code=done.error.code if done.error else None,
        )
        self._answer(message, done)

    async def _done(self, wanted: BackendControl) -> BackendControlled:
        served = self._routes().served
        found = served.get(wanted.backend)
        if found is None:
            name = shown_text(wanted.backend, MAX_NAME_CHARS)
            raise BackendUnknown(backend=name, known=", ".join(served))
        async with found as backend:
            if not isinstance(backend, Loadable):
                raise BackendNotLoadable(backend=wanted.backend, kind=found.spec.kind)
            if wanted.action == "load":
                await backend.load(timeout_ms=wanted.timeout_ms)
            elif wanted.action == "unload":
                await backend.unload(timeout_ms=wanted.timeout_ms)
            ready = await backend.ready(timeout_ms=wanted.timeout_ms)
            statistics = None
            if wanted.action == "status" and ready:
                statistics = await backend.statistics(timeout_ms=wanted.timeout_ms)
            return BackendControlled(backend=wanted.backend, ready=ready, statistics=statistics)

    def _answer(self, message: Msg, done: BackendControlled) -> None:
        if message.reply:
            self._bus.respond(message.reply, done.model_dump_json().encode())


def _refused(backend: str, error: HocketError) -> BackendControlled:
    return BackendControlled(backend=backend, error=error.info())


def _malformed(error: ValidationError) -> CallMalformed:
    fault = first_fault(error)
    return CallMalformed(field=fault.field("body"), reason=fault.reason)
