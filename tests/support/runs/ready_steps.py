"""Ready steps for the gate, and the order in which it releases them."""

from typing import Any

from hocket.coordinator.core.scheduling.gate import (
    Gate,
)
from hocket.coordinator.core.scheduling.priority_queue import (
    Ready,
)
from hocket.schemas.messages import Priority

NOW = 1_000_000.0
FAR = NOW + 1_000_000.0


def ready(name: str, **fields: Any) -> Ready:
    """Return a ready step of a new run."""
    usual: dict[str, Any] = {
        "attempt_id": f"{name}:s:1",
        "type": "python",
        "run_id": name,
        "tenant": "t",
        "priority": Priority.STANDARD,
        "partition": 0,
        "latest_start_at_ms": FAR,
        "latest_feasible_start_at_ms": FAR,
        "expected_ms": 100.0,
        "join_left": 1,
        "item": name,
    }
    return Ready(**usual | fields)


def order(gate: Gate, out: list[Ready], now_ms: float = NOW) -> list[str]:
    """Finish one step after another; return the order in which held steps are released."""
    went = []
    while out:
        gate.finished(out.pop(0).attempt_id)
        released = gate.release(now_ms)
        went += [step.item for step in released]
        out += released
    return went
