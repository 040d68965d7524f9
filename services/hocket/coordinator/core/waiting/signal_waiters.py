"""Who waits for which signal. Derived from the steps (never written), so that neither a signal nor
any other event has to look at every step of a run."""

from collections.abc import Mapping

from hocket.coordinator.core.run.state import Step, StepState
from hocket.coordinator.core.structures.heap import Heap, pop
from hocket.schemas.pipeline.plan import NodePlan
from hocket.schemas.pipeline.spec import ApprovalNode, SignalNode


def pauses(plan: NodePlan) -> bool:
    """Tell whether the run's deadline stands still while a node waits."""
    return _wait(plan).pause_deadline


def answers_to(plan: NodePlan, key: str) -> tuple[str, ...]:
    """Return the names of the signals that end a step's wait: an approval hears to its step's key
    and to its node's name, a signal node to the name that it says."""
    node = _wait(plan)
    if isinstance(node, SignalNode):
        return (node.signal,)
    return (key,) if key == plan.name else (key, plan.name)


def first(heap: Heap, steps: Mapping[str, Step]) -> tuple[Step | None, Heap]:
    """Return the first step of a heap of keys that waits still, and the heap from it on."""
    while heap is not None:
        step = steps[heap[1]]
        if step.state is StepState.WAITING:
            return step, heap
        heap = pop(heap)
    return None, None


def _wait(plan: NodePlan) -> ApprovalNode | SignalNode:
    assert isinstance(plan.node, ApprovalNode | SignalNode), plan.path
    return plan.node
