"""The platform as a worker sees it: an embedded NATS with the streams, published steps, and everything
that the worker sends, in the order in which the server received it."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from hocket.coordinator.journals.door import JournalDoor
from hocket.kit.blobs import FileBlobs
from hocket.kit.embedded.nats import NatsServer
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.consumers.stored_messages import messages_from
from hocket.kit.nats.streams import ensure_streams
from hocket.schemas import ids, journals, subjects
from hocket.schemas.capabilities import hashed
from hocket.schemas.journals import JournalWritten
from hocket.schemas.messages import Priority, StepCancelled, StepRequested, encoded

NODE_TYPE = "conformance.step"
PARTITION = 1
TENANT = "conformance"
STOP_S = 20.0
ACKS = "$JS.ACK.STEPS.>"
WAIT_S = 20.0
SHOWN_BYTES = 200
MISREAD = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What a check fails with that reads a message which is not what the protocol says."""


class NotSeen(Exception):
    """Something that a check waited for did not arrive."""


@dataclass(frozen=True)
class Heard:
    """A message of the worker, with its number in the server's order and its time of arrival."""

    number: int
    at_s: float
    subject: str
    data: bytes
    headers: dict[str, str]

    @property
    def shown(self) -> str:
        """The begin of its body."""
        more = "..." if len(self.data) > SHOWN_BYTES else ""
        return f"{self.data[:SHOWN_BYTES]!r}{more}"

    def json(self) -> Any:
        """Return the message's body; raise NotSeen if it is not JSON."""
        _note(self)
        with reading(self):
            return json.loads(self.data)


@dataclass(frozen=True)
class Result:
    """One result of one attempt, with the message that contained it."""

    said: dict[str, Any]
    heard: Heard

    @property
    def body(self) -> dict[str, Any]:
        """The result's fields."""
        _note(self.heard)
        return self.said


_LAST_READ: ContextVar[list[Heard]] = ContextVar("last_read")


def _note(one: Heard) -> None:
    _LAST_READ.get([])[:] = [one]


@contextmanager
def noting() -> Iterator[list[Heard]]:
    """Give the message that the block has read last, in a list, which is empty if it read none."""
    last: list[Heard] = []
    before = _LAST_READ.set(last)
    try:
        yield last
    finally:
        _LAST_READ.reset(before)


@dataclass
class Stage:
    """One server, and the worker's processes. `folder` is used by this stage only."""

    folder: Path
    command: Sequence[str]
    heard: list[Heard] = field(default_factory=list)
    _numbers: int = 0
    running: asyncio.subprocess.Process = field(init=False)
    """The process that is running now."""

    async def open(self) -> None:
        """Start the server, and listen to everything that workers may send."""
        self.server = NatsServer(self.folder / "nats")
        await self.server.start()
        self.bus = await Bus.connect(self.server.url, name="conformance")
        await ensure_streams(self.bus)
        self.blobs = FileBlobs(self.folder / "blobs")
        (self.folder / "blobs").mkdir(exist_ok=True)
        self._journals = AsyncExitStack()
        await self._journals.enter_async_context(JournalDoor(self.bus, None).open())
        self._changed = asyncio.Event()
        self._processes: list[asyncio.subprocess.Process] = []
        for subject in (subjects.LOG_FILTER, subjects.DLQ_FILTER, "hocket.worker.*", ACKS):
            await self.bus.subscribe(subject, self._on_message)
        await self.bus.nc.flush()

    async def close(self) -> None:
        """Stop the worker's processes and the server."""
        await self.stop_all()
        await self._journals.aclose()
        await self.bus.close()
        await self.server.stop()

    # ---- the worker's processes -------------------------------------------------------------

    async def start(self) -> asyncio.subprocess.Process:
        """Start a process of the worker, and wait until it announces itself with slots."""
        since = self._numbers
        environment = os.environ | {
            "NATS_URL": self.server.url,
            "HOCKET_NATS_URL": self.server.url,
            "HOCKET_BLOBS_DIR": str(self.folder / "blobs"),
            "HOCKET_DATA_DIR": str(self.folder),
        }
        log = (self.folder / "worker.log").open("ab")
        process = await asyncio.create_subprocess_exec(
            *self.command, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        self._processes.append(process)
        await _announced(self, process, since)
        return process

    async def stop(self, process: asyncio.subprocess.Process, number: int) -> int | None:
        """Send a signal to a process and its children, and return its exit code."""
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            elif process.returncode is None:
                process.send_signal(number)
        try:
            return await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            return None

    async def stop_all(self) -> None:
        """Kill the processes that were started, and their children."""
        while self._processes:
            await self.stop(self._processes.pop(), signal.SIGKILL)

    # ---- what the platform says -------------------------------------------------------------

    def made(self, task: Any, **fields: Any) -> StepRequested:
        """Create a step whose input is `task`."""
        self._numbers += 1
        now_ms = time.time() * 1000
        return StepRequested.model_validate(
            {
                "run_id": f"conformance{self._numbers:08d}",
                "tenant": TENANT,
                "pipeline": "conformance",
                "version": 1,
                "step": "step",
                "node": "step",
                "type": NODE_TYPE,
                "attempt": 1,
                "input": task,
                "config": {},
                "deadline_at_ms": now_ms + 60_000,
                "run_deadline_at_ms": now_ms + 60_000,
                "slack_ms": 30_000,
                "timeout_ms": 30_000,
                "priority": Priority.STANDARD,
                "partition": PARTITION,
                "epoch": 1,
                "dispatched_at_ms": round(now_ms),
                "capability": f"secret{self._numbers}",
                **fields,
            }
        )

    async def send(self, task: Any, **fields: Any) -> StepRequested:
        """Publish a step whose input is `task`."""
        step = self.made(task, **fields)
        await self.send_raw(encoded(step), msg_id=dispatch_id(step))
        return step

    async def send_raw(self, body: bytes, *, msg_id: str, lane: str = "normal") -> None:
        """Publish bytes on a subject of steps."""
        await self.bus.publish(subjects.step(NODE_TYPE, lane), body, msg_id=msg_id)

    def cancel(self, step: StepRequested, capability: str | None) -> None:
        """Tell workers to stop an attempt."""
        cancelled = StepCancelled(
            run_id=step.run_id,
            step=step.step,
            attempt=step.attempt,
            reason="conformance",
            capability_sha256=hashed(capability),
        )
        self.bus.publish_nowait(subjects.CANCEL_FILTER, encoded(cancelled))

    # ---- what the worker says ---------------------------------------------------------------

    def results(self, step: StepRequested) -> list[Result]:
        """Return the results received so far for a step's run; raise NotSeen if one is not a result."""
        found = []
        for one in self.heard:
            if one.subject.startswith("hocket.log.") and not one.subject.endswith(".returned"):
                body = one.json()
                with reading(one):
                    many = body["results"] if one.subject.endswith(".results") else [body]
                    mine = [result for result in many if result.get("run_id") == step.run_id]
                found += [Result(result, one) for result in mine]
        return found

    async def result(self, step: StepRequested, within_s: float = WAIT_S) -> Result:
        """Return the first result of a step, or raise NotSeen."""
        await self.until(
            lambda: bool(self.results(step)),
            f"a result on hocket.log.{PARTITION}.finished within {within_s:g} s",
            within_s,
        )
        return self.results(step)[0]

    async def until(
        self, condition: Callable[[], bool], what: str, within_s: float = WAIT_S
    ) -> None:
        """Wait until a condition on the worker's messages holds; raise NotSeen if it does not."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise NotSeen(f"{what} did not arrive") from None

    async def waiting(self) -> int:
        """Return how many steps are in the stream, that is, not acknowledged."""
        return int((await self.bus.js.stream_info(subjects.STEPS)).state.messages)

    async def journal(self, step: StepRequested) -> list[tuple[int, JournalWritten]]:
        """Return the messages in a step's journal, each with its sequence number."""
        subject = subjects.journal(step.run_id, journals.name_of(step.run_id, step.step))
        found, _ = await messages_from(self.bus, subjects.JOURNALS, subject, 1)
        return [(one.seq, JournalWritten.model_validate_json(one.body)) for one in found]

    async def _on_message(self, msg: Msg) -> None:
        self._numbers += 1
        headers = dict(msg.headers or {})
        one = Heard(self._numbers, time.monotonic(), msg.subject, msg.data, headers)
        self.heard.append(one)
        self._changed.set()


async def _announced(stage: Stage, process: asyncio.subprocess.Process, since: int) -> None:
    """Wait until a process of the worker announces itself with slots; raise NotSeen if it ends."""
    awaited = f"an announcement on {subjects.WORKER_ANNOUNCED} with slots for {NODE_TYPE}"
    announced = asyncio.ensure_future(
        stage.until(
            lambda: any(one.number > since and slots_of(one) for one in stage.heard), awaited
        )
    )
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({announced, ended}, return_when=asyncio.FIRST_COMPLETED)
        # one that ends with 0 may be a launcher
        if process.returncode and not announced.done():
            raise NotSeen(f"the command ended with exit code {process.returncode} before {awaited}")
        await announced
    finally:
        announced.cancel()
        ended.cancel()


@contextmanager
def reading(one: Heard) -> Iterator[None]:
    """Raise NotSeen, with the message, if the block finds that it is not what the protocol says."""
    try:
        yield
    except MISREAD as error:
        raise misread(one, error) from error


def misread(one: Heard, error: Exception) -> NotSeen:
    """Return the error for a message that cannot be read."""
    reason = shown_error(error)
    return NotSeen(
        f"a message on {one.subject} is not what the protocol says ({reason}): {one.shown}"
    )


def shown_error(error: Exception) -> str:
    """Return the kind and the text of an error, cut to what can be shown."""
    return f"{type(error).__name__}: {error}"[:SHOWN_BYTES]


def slots_of(one: Heard) -> int:
    """Return how many steps of NODE_TYPE the worker runs at once, according to an announcement; raise
    NotSeen if it is none."""
    if one.subject != subjects.WORKER_ANNOUNCED:
        return 0
    body = one.json()
    with reading(one):
        return int(body.get("slots", {}).get(NODE_TYPE, 0))


def result_id(step: StepRequested) -> str:
    """Return the `Nats-Msg-Id` that a result must have."""
    attempt = ids.attempt_id(step.run_id, step.step, step.attempt)
    return ids.capable(ids.result_id(attempt, step.dispatched_at_ms), step.capability)


def dispatch_id(step: StepRequested) -> str:
    """Return the `Nats-Msg-Id` of a step that is sent alone."""
    attempt = ids.attempt_id(step.run_id, step.step, step.attempt)
    return ids.capable(ids.dispatch_id(attempt, step.dispatched_at_ms), step.capability)
