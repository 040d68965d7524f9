"""The door for operators of replicas.

A ReplicaControl sent to `hocket.gateway.replicas` is answered by one gateway with a ReplicasTold,
and followed by all; on `hocket.gateway.states` every gateway reports the state of its replicas.
"""

import asyncio
from collections.abc import Callable

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from pydantic import ValidationError

from hocket.gateway.capacity.membership import Membership
from hocket.gateway.core.errors import CallMalformed, GatewayFull
from hocket.gateway.operations.replica_orders import ReplicaOrders
from hocket.gateway.operations.replica_states import ReplicaStates
from hocket.gateway.rates.model_rates import ModelRates
from hocket.kit.nats.bus import Bus
from hocket.kit.process.task_stop import stop_tasks
from hocket.schemas import subjects
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import BudgetRule, ReplicaControl, ReplicasTold

QUEUE = "gateway"
MAX_ONGOING = 64

log = structlog.get_logger()


class ReplicasDoor:
    """Listens between `open` and `close`."""

    def __init__(
        self,
        bus: Bus,
        membership: Membership,
        orders: ReplicaOrders,
        states: ReplicaStates,
        rates: ModelRates,
        budgets: Callable[[], tuple[BudgetRule, ...]],
    ) -> None:
        self._bus = bus
        self._membership = membership
        self._orders = orders
        self._states = states
        self._rates = rates
        self._budgets = budgets
        self._subscriptions: list[Subscription] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Subscribe."""
        self._subscriptions = [
            await self._bus.subscribe(subjects.GATEWAY_REPLICAS, self._on_control, queue=QUEUE),
            await self._bus.subscribe(subjects.GATEWAY_STATES, self._on_asked),
        ]

    async def close(self) -> None:
        """Take no more, and cancel those in progress."""
        for subscription in self._subscriptions:
            await subscription.unsubscribe()
        await stop_tasks(self._tasks)

    async def _on_asked(self, message: Msg) -> None:
        self._answer(message, self._told())

    async def _on_control(self, message: Msg) -> None:
        try:
            wanted = ReplicaControl.model_validate_json(message.data)
        except ValidationError as error:
            fault = first_fault(error)
            malformed = CallMalformed(field=fault.field("body"), reason=fault.reason)
            self._answer(message, ReplicasTold(error=malformed.info()))
            return
        if len(self._tasks) >= MAX_ONGOING:
            full = GatewayFull(limit=MAX_ONGOING, component="gateway")
            self._answer(message, ReplicasTold(error=full.info()))
            return
        task = asyncio.create_task(self._control(message, wanted), name="replica control")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _control(self, message: Msg, wanted: ReplicaControl) -> None:
        try:
            await self._orders.control(wanted)
            told = self._told()
        except HocketError as error:
            told = ReplicasTold(error=error.info())
        log.info(
            "replicas_controlled",
            backend=wanted.backend,
            replica=wanted.replica,
            action=wanted.action,
            by=wanted.by,
            error_code=told.error.code if told.error else None,
        )
        self._answer(message, told)

    def _told(self) -> ReplicasTold:
        return ReplicasTold(
            gateway=self._membership.name,
            gateways=tuple(sorted(self._membership.live)),
            replicas=self._states.all(),
            rates=self._rates.states(),
            budgets=self._budgets(),
        )

    def _answer(self, message: Msg, told: ReplicasTold) -> None:
        if message.reply:
            self._bus.respond(message.reply, told.model_dump_json().encode())
