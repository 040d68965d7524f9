"""The queues to be decided: which ones next, and by how many tasks at once.

A pipeline's row is locked while it is decided, perhaps by another coordinator and for long. So one
task decides it at a time, and the pipelines of one tenant occupy at most MAX_OF_TENANT tasks. The
tenants take turns, and so do the pipelines of each.
"""

from collections.abc import Collection, Iterable
from itertools import islice

from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.flow.store import MAX_KEYS

MAX_TOUCHED = 10_000
"""How many queues are remembered here; any others are found by the look for undecided ones."""
MAX_OF_TENANT = 2
"""How many pipelines of one tenant are decided at once."""


class TouchedQueues:
    """Queues that were touched, or will be when their time has come. A pipeline that was taken is
    taken again only after `decided`; times are milliseconds of one clock."""

    def __init__(self) -> None:
        self._touched: dict[str, dict[str, dict[FlowQueue, None]]] = {}
        """By tenant and pipeline, both in the order of their turns."""
        self._count = 0
        self._taken: dict[str, set[str]] = {}
        self._due_ms: dict[FlowQueue, float] = {}
        self._first_due_ms = float("inf")

    @property
    def first_due_ms(self) -> float | None:
        """Before when no queue is touched by time alone; None if none ever is."""
        return self._first_due_ms if self._due_ms else None

    def touch(self, queues: Iterable[FlowQueue]) -> None:
        """Have these queues decided, unless too many are remembered already."""
        if self._count < MAX_TOUCHED:
            self.put_back(queues)

    def put_back(self, queues: Iterable[FlowQueue]) -> None:
        """Have these queues decided, however many are remembered: they were before."""
        for queue in queues:
            pipelines = self._touched.setdefault(queue.tenant, {})
            of_pipeline = pipelines.setdefault(queue.pipeline, {})
            if queue not in of_pipeline:
                of_pipeline[queue] = None
                self._count += 1

    def touch_later(self, queue: FlowQueue, at_ms: float) -> None:
        """Have a queue decided when its time has come."""
        if len(self._due_ms) < MAX_TOUCHED:
            self._due_ms[queue] = at_ms
            self._first_due_ms = min(self._first_due_ms, at_ms)

    def take(self, now_ms: float) -> Collection[FlowQueue]:
        """Remove and return queues of the pipeline whose turn it is; none if there is nothing that may
        be decided now."""
        self._touch_due(now_ms)
        for tenant, pipelines in self._touched.items():
            taken = self._taken.get(tenant, set())
            if len(taken) >= MAX_OF_TENANT:
                continue
            pipeline = next((one for one in pipelines if one not in taken), None)
            if pipeline is not None:
                self._taken[tenant] = taken | {pipeline}
                return self._some_of(tenant, pipeline)
        return ()

    def decided(self, tenant: str, pipeline: str) -> None:
        """Note that a pipeline that was taken is not being decided any more."""
        self._taken[tenant].remove(pipeline)
        if not self._taken[tenant]:
            del self._taken[tenant]

    def _some_of(self, tenant: str, pipeline: str) -> list[FlowQueue]:
        """Remove as many queues as one transaction takes; what remains has its next turn last."""
        pipelines = self._touched.pop(tenant)
        queues = pipelines.pop(pipeline)
        some = list(islice(queues, MAX_KEYS))
        for queue in some:
            del queues[queue]
            self._due_ms.pop(queue, None)
        self._count -= len(some)
        if queues:
            pipelines[pipeline] = queues
        if pipelines:
            self._touched[tenant] = pipelines
        return some

    def _touch_due(self, now_ms: float) -> None:
        if now_ms < self._first_due_ms:
            return
        due = [queue for queue, at_ms in self._due_ms.items() if at_ms <= now_ms]
        for queue in due:
            del self._due_ms[queue]
        self._first_due_ms = min(self._due_ms.values(), default=float("inf"))
        self.put_back(due)
