"""A worker process: its pools by node type, cancellations, keep-alives, and shutdown.

States: started -> draining (nothing is fetched; running steps may finish within a bound) -> stopped
(steps that did not finish were returned to the stream for another worker).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.kit.blobs import BlobStore
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.process.clock import now_ms
from hocket.schemas import subjects
from hocket.schemas.messages import StepCancelled, TypeDescribed
from hocket.workers.runtime.execution.metrics import Meters
from hocket.workers.runtime.execution.parts import parts
from hocket.workers.runtime.execution.pool import Pool
from hocket.workers.runtime.execution.runner import Handler
from hocket.workers.runtime.intake.after_worker_death import give_back, take_over
from hocket.workers.runtime.models.calls import Calls
from hocket.workers.runtime.transport.announcements import Announcements
from hocket.workers.runtime.transport.consumers import ACK_WAIT_S
from hocket.workers.runtime.transport.held_steps import HeldSteps

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

KEEP_ALIVE_SHARE = 1 / 3
"""Each time this share of the ack wait has passed, a held step is reported as in progress."""
SWEEP_SHARE = 1 / 6
MAX_SWEEP_S = 1.0
"""The longest interval between checks for a silent server, however long the ack wait is."""
DRAIN_S = 10.0
"""How long running steps may continue when the worker stops."""
FLUSH_S = 5.0
"""How long, after that, posted results wait for their acknowledgement."""

OVERRUN_S = 30.0
"""How long functions that did not end in time may hold more than half of a type's slots."""

log = structlog.get_logger()
_reporting = Reporting()

Report = Callable[[str, bool, str], None]


def unreported(_component: str, _ok: bool, _detail: str) -> None:
    """Report no component's health to anybody."""


class Worker:
    """Runs the steps of the pools in `handlers` (`python`, `crm.lookup@gpu`), each with its number of
    slots. `types` describes the custom node types among them."""

    def __init__(
        self,
        bus: Bus,
        handlers: Mapping[str, Handler],
        slots: Mapping[str, int],
        *,
        name: str,
        meters: Meters,
        blobs: BlobStore | None = None,
        ack_wait_s: float = ACK_WAIT_S,
        calls: Calls | None = None,
        report: Report = unreported,
        overrun_s: float = OVERRUN_S,
        types: Sequence[TypeDescribed] = (),
        held: HeldSteps | None = None,
    ) -> None:
        self._bus = bus
        self._name = name
        self._ack_wait_s = ack_wait_s
        self._parts = parts(
            bus,
            name,
            blobs=blobs,
            calls=calls,
            held=held or HeldSteps(),
            slots_changed=self._slots_changed,
        )
        self._pools = [
            Pool(
                self._parts,
                node_type,
                handler,
                slots=slots[node_type],
                ack_wait_s=ack_wait_s,
                meters=meters.of_type(node_type, slots[node_type]),
                slots_changed=self._slots_changed,
            )
            for node_type, handler in handlers.items()
        ]
        self._announcements = Announcements(bus, name, self._free_slots, types)
        self._report = report
        self._overrun_s = overrun_s
        self.overrun = asyncio.Event()
        """Set when functions that did not end have held more than half of a type's slots for too long:
        the process should drain and be restarted."""
        self._subscriptions: list[Subscription] = []
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start fetching and running steps."""
        self._subscriptions = [await self._bus.subscribe(subjects.CANCEL_FILTER, self._on_cancel)]
        self._bus.on_reconnect.append(self._on_reconnect)  # the bus may be lost while pools start
        left = await take_over(self._parts.held, self._parts.probation.kinds)
        self._parts.over_nats.open()
        self._parts.lines.begin()
        for pool in self._pools:
            await pool.start()
        give_back(self._bus, left)
        await self._announcements.start()
        self._sweeping = asyncio.create_task(self._sweep(), name="keep-alive")
        log.info(
            "worker_started",
            worker=self._name,
            slots={pool.node_type: pool.slots.total for pool in self._pools},
        )

    async def drain(self, drain_s: float = DRAIN_S) -> None:
        """Stop fetching, let running steps finish within `drain_s`, and return the rest to the
        stream."""
        await self._announcements.stop()
        await asyncio.gather(*(pool.stop_fetching() for pool in self._pools))
        given_back = 0
        in_time = await self._settled(drain_s)
        await self._parts.probation.close()  # before another worker reads what was noted
        if not in_time:
            given_back = sum(pool.give_all_back() for pool in self._pools)
            await self._settled(FLUSH_S)
        self._parts.acks.send()
        self._parts.held.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._bus.on_reconnect.remove(self._on_reconnect)  # until now, what runs must be recognised
        for subscription in self._subscriptions:
            with suppress(NatsError):  # the connection was closed
                await subscription.unsubscribe()
        await self._parts.acks.close()
        self._parts.over_nats.close()
        await self._parts.lines.close()
        log.info("worker_drained", worker=self._name, given_back=given_back)

    async def _settled(self, within_s: float) -> bool:
        """Wait until no attempt is held; tell whether that happened in time."""
        try:
            async with asyncio.timeout(within_s):
                for pool in self._pools:
                    await pool.settled()
        except TimeoutError:
            return False
        return True

    async def _on_cancel(self, msg: "Msg") -> None:
        try:
            cancelled = StepCancelled.model_validate_json(msg.data)
        except ValidationError as error:
            if count := _reporting.due("cancellation_malformed"):
                log.warning("cancellation_malformed", faults=error.error_count(), count=count)
            return
        self._parts.cancellations.remember(cancelled, now_ms())
        stopped = sum(pool.cancel(cancelled) for pool in self._pools)
        if stopped:
            log.info("attempts_cancelled", run_id=cancelled.run_id, count=stopped)

    def _on_reconnect(self) -> None:
        self._parts.acks.repeat()
        for pool in self._pools:
            pool.reopen()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(self._ack_wait_s * SWEEP_SHARE, MAX_SWEEP_S))
            for pool in self._pools:
                pool.keep_alive(self._ack_wait_s * KEEP_ALIVE_SHARE)
                if pool.slots.overrun_s() >= self._overrun_s and not self.overrun.is_set():
                    log.error("worker_overrun", type=pool.node_type, held=pool.slots.held)
                    self.overrun.set()

    def _free_slots(self) -> dict[str, int]:
        """Return how many steps of each type can run at once, not counting held slots. While a step on
        probation runs alone, each type still announces one slot, because none would mean that no worker
        runs the type."""
        if self._parts.isolation.is_closed:
            return {
                pool.node_type: min(1, pool.slots.total - pool.slots.held) for pool in self._pools
            }
        return {pool.node_type: pool.slots.total - pool.slots.held for pool in self._pools}

    def _slots_changed(self) -> None:
        self._announcements.changed()
        for pool in self._pools:
            held, ok = pool.slots.held, pool.slots.overrun_s() == 0.0
            detail = f"{held} of {pool.slots.total} slots are held by functions that did not end"
            self._report(f"{pool.node_type} slots", ok, detail if held else "")
