"""A rig for handlers with a journal: workers, the coordinators' door to journals, and steps dispatched
as coordinators do it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

from hocket.coordinator.journals.door import JournalDoor
from hocket.schemas import ids, subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.journals import JournalWritten
from hocket.schemas.messages import AttemptFinished, StepRequested, encoded
from hocket.workers.runtime.execution.context import Context
from hocket.workers.runtime.execution.functions import described, run_function
from hocket.workers.runtime.execution.step_threads import StepThreads
from support.worker_rig import Rig, attempt_id

TYPE = "durable.step"
CAPABILITIES = Capabilities([b"k" * 32])


@asynccontextmanager
async def durable_rig(nats_url: str) -> AsyncIterator[Rig]:
    """Open a rig with a journal door."""
    rig = await Rig.open(nats_url)
    async with JournalDoor(rig.bus, CAPABILITIES).open():
        yield rig
    await rig.close()


@asynccontextmanager
async def worker(rig: Rig, function: Callable[..., Any], **options: Any) -> AsyncIterator[None]:
    """Run a function for the steps of TYPE."""
    with closing(StepThreads(8)) as threads:

        async def run(context: Context) -> Any:
            return await run_function(described("function", function), context, threads)

        async with rig.worker({TYPE: run}, **options):
            yield


async def send(rig: Rig, node: str = TYPE, **changes: Any) -> StepRequested:
    step = capable(rig.step(**{"type": node, "journal": True, **changes}))
    msg_id = ids.dispatch_id(attempt_id(step), step.dispatched_at_ms)
    await rig.bus.publish(subjects.step(step.type, "normal"), encoded(step), msg_id=msg_id)
    return step


def capable(step: StepRequested) -> StepRequested:
    """Return a step as a coordinator dispatches it, with a capability."""
    capability = CAPABILITIES.of_attempt(
        step.tenant, step.run_id, step.step, step.attempt, step.dispatched_at_ms
    )
    return step.model_copy(update={"capability": capability})


async def again(rig: Rig, step: StepRequested, **changes: Any) -> AttemptFinished:
    """Dispatch the next attempt of a step, and return its result."""
    number = {"attempt": step.attempt + 1} | changes
    return await rig.result(await send(rig, **(step.model_dump() | number)))


async def written(rig: Rig, step: StepRequested) -> list[JournalWritten]:
    found = await rig.bus.js.get_last_msg(subjects.JOURNALS, subjects.journals_of(step.run_id))
    consumer = await rig.bus.js.subscribe(
        found.subject or "", stream=subjects.JOURNALS, ordered_consumer=True
    )
    messages = []
    while not messages or messages[-1].metadata.num_pending:
        messages.append(await consumer.next_msg(5))
    await consumer.unsubscribe()
    return [JournalWritten.model_validate_json(one.data) for one in messages]


def ok(result: AttemptFinished) -> Any:
    assert result.error is None, result.error
    return result.output
