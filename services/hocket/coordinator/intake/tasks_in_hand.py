"""The tasks that intake has taken from their streams and not yet decided: about MAX_IN_HAND, or
MAX_IN_HAND_BYTES, plus what was requested meanwhile. They are reported to the streams as in
progress; a process that ends gives them back."""

import asyncio
from collections import deque
from collections.abc import Callable

from hocket.coordinator.intake.arrival import Arrival, read_arrival
from hocket.coordinator.intake.consumer import ACK_WAIT_S, TaskPull
from hocket.coordinator.storage.store import MAX_KEYS
from hocket.kit.nats.bus import Bus
from hocket.kit.nats.protocol import RawMessage
from hocket.schemas import subjects

MAX_IN_HAND = 1_000
MAX_IN_HAND_BYTES = 4 * 1024 * 1024
"""Of their messages; what they are parsed into takes more than ten times the memory."""
KEEP_ALIVE_S = ACK_WAIT_S / 4


class TasksInHand:
    """Pulls tasks unless `is_full`, and hands them out in batches, in order."""

    def __init__(self, bus: Bus, *, max_task_bytes: int, is_full: Callable[[], bool]) -> None:
        self._bus = bus
        self._max_task_bytes = max_task_bytes
        self._is_full = is_full
        self._arrivals: deque[Arrival] = deque()
        self._bytes = 0
        self.batch: deque[Arrival] = deque()
        """The tasks being decided; `decided` removes the first."""
        self._arrived = asyncio.Event()
        self._pulls = [
            TaskPull(bus, deliver=self._deliver, room=self._room),
            TaskPull(
                bus,
                deliver=self._deliver_batched,
                room=self._room,
                stream=subjects.TASK_BATCHES,
            ),
        ]

    def __len__(self) -> int:
        return len(self.batch) + len(self._arrivals)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Pull tasks and keep them alive in tasks of this group; cancel those to stop."""
        for pull in self._pulls:
            group.create_task(pull.run(), name="tasks")
        group.create_task(self._keep_alive(), name="tasks-in-hand")

    async def fill_batch(self) -> None:
        """Wait for tasks, and fill the batch with as many as are looked up in one query."""
        await self._arrived.wait()
        while self._arrivals and len(self.batch) < MAX_KEYS:
            self.batch.append(self._arrivals.popleft())
        if not self._arrivals:
            self._arrived.clear()

    def decided(self) -> None:
        """Remove the first task of the batch."""
        self._bytes -= len(self.batch.popleft().message.data)

    def more(self) -> None:
        """Report that tasks may be taken in again."""
        for pull in self._pulls:
            pull.more()

    def give_back(self) -> None:
        """Have the streams deliver the tasks again, to any coordinator that takes tasks then."""
        for arrival in (*self.batch, *self._arrivals):
            self._bus.publish_nowait(arrival.message.reply, b"-NAK")

    def _room(self) -> int:
        if self._is_full() or self._bytes >= MAX_IN_HAND_BYTES:
            return 0
        return MAX_IN_HAND - len(self)

    async def _keep_alive(self) -> None:
        """Report regularly that tasks which stay in hand are in progress."""
        in_hand: set[str] = set()
        while True:
            await asyncio.sleep(KEEP_ALIVE_S)
            before, in_hand = in_hand, {a.message.reply for a in (*self.batch, *self._arrivals)}
            for reply in before & in_hand:
                self._bus.publish_nowait(reply, b"+WPI")

    def _deliver_batched(self, message: RawMessage) -> None:
        """Deliver a task from a bulk submission under the subject it would have by itself."""
        tenant, pipeline = message.subject.split(".")[2:4]
        message.subject = subjects.task(tenant, pipeline)
        self._deliver(message)

    def _deliver(self, message: RawMessage) -> None:
        self._bytes += len(message.data)
        self._arrivals.append(read_arrival(message, max_bytes=self._max_task_bytes))
        self._arrived.set()
