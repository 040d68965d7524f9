"""Gateways that report about their replicas what a test tells them to."""

import json

from nats.aio.msg import Msg

from hocket.kit.nats.bus import Bus
from hocket.schemas import subjects
from hocket.schemas.messages import ExperimentState, ExperimentsTold, ReplicaControl, ReplicasTold


class ToldGateways:
    """Several gateways on one connection; `controls` lists the requests that they received."""

    def __init__(
        self,
        bus: Bus,
        *told: ReplicasTold,
        experiments: tuple[ExperimentState, ...] = (),
        models: tuple[str, ...] = (),
    ) -> None:
        self._bus = bus
        self._experiments = ExperimentsTold(experiments=experiments)
        self._models = models
        self.told = list(told)
        self.controls: list[ReplicaControl] = []

    async def open(self) -> None:
        await self._bus.subscribe(subjects.GATEWAY_STATES, self._on_asked)
        await self._bus.subscribe(subjects.GATEWAY_REPLICAS, self._on_control)
        await self._bus.subscribe(subjects.GATEWAY_EXPERIMENTS, self._on_experiments)
        if self._models:
            await self._bus.subscribe(subjects.GATEWAY_MODELS, self._on_models)

    async def _on_asked(self, message: Msg) -> None:
        for one in self.told:
            await self._bus.nc.publish(message.reply, one.model_dump_json().encode())

    async def _on_control(self, message: Msg) -> None:
        wanted = ReplicaControl.model_validate_json(message.data)
        self.controls.append(wanted)
        if wanted.action in ("drain", "resume"):
            order = {
                "drained": wanted.action == "drain", "by": wanted.by, "reason": wanted.reason,
                "changed_at_ms": 1_800_000_000_000.0 + len(self.controls),
            }  # fmt: skip
            for number, one in enumerate(self.told):
                replicas = tuple(
                    state.model_copy(update=order) if state.replica == wanted.replica else state
                    for state in one.replicas
                )
                self.told[number] = one.model_copy(update={"replicas": replicas})
        await self._bus.nc.publish(message.reply, self.told[0].model_dump_json().encode())

    async def _on_experiments(self, message: Msg) -> None:
        await self._bus.nc.publish(message.reply, self._experiments.model_dump_json().encode())

    async def _on_models(self, message: Msg) -> None:
        models = [{"name": name, "priced": True} for name in self._models]
        told = json.dumps({"models": models, "prices": {}})
        await self._bus.nc.publish(message.reply, told.encode())
