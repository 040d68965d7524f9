"""The users of a simulated platform: they publish tasks, repeat themselves, cancel, and answer
approvals.

What they do is drawn before the play begins. A user publishes until the server confirms that it has the
task, as REST does. Steps that wait for a person are answered sooner or later, and again if that had no
effect.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from hocket.kit.nats import cloudevents
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.errors import BusUnavailable
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import SEAL
from hocket.schemas.errors import HocketError
from hocket.schemas.messages import CancelRequested, LogEvent, RunOrigin, SignalReceived
from hocket.schemas.repeats import check_repeat
from simulation.engine.database import Database
from simulation.engine.world import Process
from simulation.platform.compiled import plan_of
from simulation.platform.platform import CAPABILITIES

TENANT = "t"
ANSWER_EVERY_S = 0.7
LOOK_EVERY_S = 0.4
AGAIN = ("retry", "retry", "step", "step", "step-input", "input", "version")
"""Ways to repeat a run: what failed, from a step, from a step with another input, with another input,
as another version."""


@dataclass
class Task:
    """A task that will be published at a given time, perhaps more than once."""

    at_s: float
    pipeline: str
    key: str | None
    input: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    repeats_s: tuple[float, ...] = ()
    cancel_after_s: float | None = None
    early_signal: bool = False
    body: bytes | None = None
    """What is published in place of the input."""
    again: str | None = None
    """How the run is repeated once it has ended: one of AGAIN."""

    @property
    def run_id(self) -> str | None:
        return None if self.key is None else ids.run_id(TENANT, self.key)


@dataclass
class Heard:
    """What a caller received in its inbox."""

    subject: str
    body: dict[str, Any]


class User:
    """A user of the simulated platform."""

    def __init__(self, process: Process, database: Database, tasks: list[Task], *, partitions: int):
        self.process = process
        self.tasks = tasks
        self.published: set[str] = set()
        """Keys of tasks that the server has confirmed."""
        self.bare = 0
        """Number of tasks without a key that the server has confirmed."""
        self.heard: list[Heard] = []
        self.done = False
        self._database = database
        self._partitions = partitions
        self._world = process.world
        self._dice = self._world.dice("user")
        self._answers = 0

    async def run(self, url: str) -> None:
        bus = await Bus.connect(url, name="user")

        async def told(message: Any) -> None:
            self.heard.append(Heard(message.subject, json.loads(message.data)))

        await bus.subscribe("_INBOX.reply.*", told)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer(bus))
            publishing = [group.create_task(self._publish(bus, task)) for task in self.tasks]
            await asyncio.wait(publishing)
            self.done = True

    async def _publish(self, bus: Bus, task: Task) -> None:
        await asyncio.sleep(task.at_s)
        if task.early_signal and task.run_id is not None:
            await self._signal(bus, task.run_id, "go")
        await self._until_stored(bus, task)
        for pause_s in task.repeats_s:
            await asyncio.sleep(pause_s)
            await self._until_stored(bus, task)
        if task.cancel_after_s is not None and task.run_id is not None:
            await asyncio.sleep(task.cancel_after_s)
            cancel = CancelRequested(
                run_id=task.run_id,
                reason="changed my mind",
                by="user",
                others=self._cancelled_with(task),
            )
            await self._post(bus, task.run_id, cancel, f"{task.run_id}:cancel:user")
        if task.again is not None and task.run_id is not None:
            await self._repeat(bus, task, task.run_id, task.again)

    def _cancelled_with(self, task: Task) -> tuple[str, ...]:
        """Return the other runs that a bulk operation cancels with the same message: those of the same
        partition that are to be cancelled and have been published by now."""
        partitions = {
            one.run_id: ids.partition_of(one.run_id, self._partitions)
            for one in self.tasks
            if one.run_id is not None
            and one.cancel_after_s is not None
            and one.at_s <= self._world.now_s
        }
        own = task.run_id
        return tuple(
            run_id for run_id, at in partitions.items() if run_id != own and at == partitions[own]
        )

    async def _repeat(self, bus: Bus, task: Task, run_id: str, how: str) -> None:
        """Repeat a run that has ended, if REST's rules allow it."""
        row = await self._ended(run_id)
        asked = self._asked(run_id, how)
        versions = sorted(self._database.pipelines[TENANT, task.pipeline])
        version = self._dice.choice(versions) if how == "version" else row["version"]
        place = self._database.place(run_id, asked.from_step) if asked.from_step else None
        run_input = {"n": 7, "xs": [1]} if how == "input" else from_json(row["input"])
        try:
            plan = plan_of(self._database, TENANT, task.pipeline, version)
            check_repeat(
                asked,
                status=row["status"],
                from_step=place,
                plan=plan,
                version=version,
                run_input=run_input,
            )
        except HocketError:
            return
        headers = {
            cloudevents.ORIGIN_RUN: run_id,
            cloudevents.OPERATION: asked.operation,
            cloudevents.VERSION: str(version),
        }
        if asked.from_step is not None:
            headers[cloudevents.FROM_STEP] = asked.from_step
        if asked.step_input is not None:
            headers[cloudevents.STEP_INPUT] = json.dumps(asked.step_input)
        again = Task(0.0, task.pipeline, f"{task.key}-again", run_input, headers)
        await self._until_stored(bus, again)

    async def _ended(self, run_id: str) -> dict[str, Any]:
        """Poll a run until it has ended, as somebody at a console would."""
        while True:
            row = self._database.runs.get(run_id)
            if row is not None and row["finished_at"] is not None:
                return row
            await asyncio.sleep(LOOK_EVERY_S)

    def _asked(self, run_id: str, how: str) -> RunOrigin:
        if how == "retry":
            return RunOrigin(run_id=run_id, operation="retry")
        steps = sorted(self._database.steps.get(run_id, {}))
        from_step = self._dice.choice(steps) if steps and how.startswith("step") else None
        step_input = {"q": 3, "n": 3, "xs": [2, 2]} if from_step and how == "step-input" else None
        return RunOrigin(
            run_id=run_id, operation="rerun", from_step=from_step, step_input=step_input
        )

    async def _until_stored(self, bus: Bus, task: Task) -> None:
        subject = subjects.task(TENANT, task.pipeline)
        payload = json.dumps(task.input).encode() if task.body is None else task.body
        headers = dict(task.headers)
        if task.key is not None:
            headers[cloudevents.IDEMPOTENCY_KEY] = task.key
        while True:
            try:
                if task.key is not None:
                    await bus.publish(subject, payload, headers=headers, timeout_ms=4_000)
                    self.published.add(task.key)
                    return
                answer = await bus.request(
                    subject, payload, headers=headers or None, timeout_ms=2_000
                )
                if b'"seq"' in answer.data:
                    self.bare += 1
                    return
            except BusUnavailable:
                pass
            await asyncio.sleep(0.5)

    # ---- approvals and signals --------------------------------------------------------------

    async def _answer(self, bus: Bus) -> None:
        """Poll for steps that wait, as somebody at a console would, and answer some of them."""
        while True:
            await asyncio.sleep(ANSWER_EVERY_S)
            for run_id in sorted(self._database.runs):
                if self._database.runs[run_id]["finished_at"] is not None:
                    continue
                steps = self._database.steps.get(run_id, {})
                for key in sorted(steps):
                    if steps[key]["state"] == "waiting" and self._dice.random() < 0.5:
                        name = "go" if steps[key]["type"] == "signal" else key
                        await self._signal(bus, run_id, name)

    async def _signal(self, bus: Bus, run_id: str, name: str) -> None:
        dice = self._dice
        self._answers += 1
        payload = {"approved": dice.random() < 0.8, "note": "ok"}
        signal_id = f"s{self._answers}"
        signal = SignalReceived(run_id=run_id, signal_id=signal_id, name=name, payload=payload)
        for number in range(2 if dice.random() < 0.3 else 1):
            await self._post(bus, run_id, signal, f"{run_id}:signal:{signal_id}:{number}")

    async def _post(self, bus: Bus, run_id: str, event: LogEvent, msg_id: str) -> None:
        partition = ids.partition_of(run_id, self._partitions)
        body = event.model_dump_json().encode()
        try:
            subject = subjects.log(partition, event.kind)
            headers = {SEAL: CAPABILITIES.seal(event.kind, body)}
            await bus.publish(subject, body, msg_id=msg_id, headers=headers, timeout_ms=3_000)
        except BusUnavailable:
            return
