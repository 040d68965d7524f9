"""The door for run outcomes, by which experiments are judged, and for operators.

An ExperimentControl sent to `hocket.gateway.experiments` is answered by one of the gateways with an
ExperimentsTold. All gateways receive the ends of runs (the public fact `run-finished`, for the
pipelines that experiments are about) and other judgements of runs (`hocket.gateway.outcome`). These
arrive over core NATS, so an end that is missed while NATS is unreachable is not judged. A reload
may change which pipelines are listened to.
"""

import asyncio

import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from pydantic import ValidationError

from hocket.gateway.core.errors import CallMalformed
from hocket.gateway.experiments.experiments import Experiments
from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities, id_of
from hocket.schemas.checks.first_fault import first_fault
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import (
    ArmRolledBack,
    ExperimentControl,
    ExperimentsTold,
    OutcomeTold,
    RunFinished,
)

QUEUE = "gateway"
SUBJECT_HEADER = "ce-subject"
"""The header of a public fact with the run's id; the body is read only for runs that matter."""
ALL = "*"

log = structlog.get_logger()
_reporting = Reporting()


class ExperimentsDoor:
    """Listens between `open` and `close`."""

    def __init__(self, bus: Bus, experiments: Experiments) -> None:
        self._bus = bus
        self._experiments = experiments
        self._subscriptions: list[Subscription] = []
        self._ends: dict[str, Subscription] = {}
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Subscribe."""
        self._subscriptions = [
            await self._bus.subscribe(subjects.GATEWAY_EXPERIMENTS, self._on_control, queue=QUEUE),
            await self._bus.subscribe(subjects.GATEWAY_OUTCOME, self._on_outcome),
        ]
        await self.listen()

    def listen_anew(self) -> None:
        """Listen to other pipelines after a reload."""
        task = asyncio.create_task(self.listen(), name="listen to ends of runs")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def listen(self) -> None:
        """Listen to the ends of runs of the pipelines that experiments are about now."""
        async with self._changing:
            wanted = {pipeline or ALL for pipeline in self._experiments.pipelines}
            wanted = {ALL} if ALL in wanted else wanted
            for pipeline in wanted - set(self._ends):
                subject = subjects.event("*", pipeline, RunFinished.kind)
                self._ends[pipeline] = await self._bus.subscribe(subject, self._on_end)
            for pipeline in set(self._ends) - wanted:
                await _unsubscribed(self._ends.pop(pipeline))

    async def close(self) -> None:
        """Unsubscribe."""
        async with self._changing:
            for subscription in (*self._subscriptions, *self._ends.values()):
                await _unsubscribed(subscription)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _on_control(self, message: Msg) -> None:
        try:
            wanted = ExperimentControl.model_validate_json(message.data)
        except ValidationError as error:
            malformed = CallMalformed(field="body", reason=first_fault(error).reason)
            self._answer(message, ExperimentsTold(error=malformed.info()))
            return
        task = asyncio.create_task(self._control(message, wanted), name="experiment control")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _control(self, message: Msg, wanted: ExperimentControl) -> None:
        try:
            if wanted.action != "list":
                await self._experiments.control(
                    wanted.action,
                    wanted.experiment,
                    wanted.arm,
                    wanted.by,
                    tenant=wanted.tenant,
                )
            told = ExperimentsTold(experiments=self._experiments.states(wanted.tenant))
        except HocketError as error:
            told = ExperimentsTold(error=error.info())
        self._answer(message, told)

    async def _on_outcome(self, message: Msg) -> None:
        try:
            told = OutcomeTold.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("outcome_malformed"):
                log.warning("outcome_malformed", reason=str(error)[:500], count=count)
            return
        self._experiments.record_outcome(told.tenant, told.run_id, told.good)

    async def _on_end(self, message: Msg) -> None:
        run_id = (message.headers or {}).get(SUBJECT_HEADER)
        tenant = message.subject.split(".")[2]
        if run_id is not None and not self._experiments.knows(tenant, run_id):
            return
        try:
            end = RunFinished.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("end_malformed"):
                log.warning(
                    "end_malformed", subject=message.subject, reason=str(error)[:500], count=count
                )
            return
        if end.tenant == tenant:  # writers of one tenant's facts must not judge another's runs
            self._experiments.ended(end)

    def _answer(self, message: Msg, told: ExperimentsTold) -> None:
        if message.reply:
            self._bus.respond(message.reply, told.model_dump_json().encode())


def publish_fact(bus: Bus, seals: Capabilities | None, fact: ArmRolledBack, msg_id: str) -> None:
    """Publish a fact of the gateways on EVENTS, without waiting,
    under an id that nobody else can use first."""
    subject = subjects.event(subjects.GATEWAY_TENANT, fact.experiment, fact.kind)
    posted = bus.publish_durable(
        subject, fact.model_dump_json().encode(), msg_id=id_of(seals, msg_id)
    )
    posted.add_done_callback(lambda done: done.cancelled() or done.exception())


async def _unsubscribed(subscription: Subscription) -> None:
    try:
        await subscription.unsubscribe()
    except NatsError as error:
        log.debug("experiments_not_unsubscribed", reason=repr(error))
