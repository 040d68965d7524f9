"""What the workers' handlers did, recorded where no product code can reach it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from typing import Any

from hocket.schemas import ids
from simulation.engine.world import Process, World


@dataclass(slots=True, eq=False)
class Execution:
    """One call of a handler."""

    run_id: str
    step: str
    attempt: int
    delivery: int
    node: str
    type: str
    worker: str
    input: Any
    begun_s: float
    dispatched_at_ms: float | None
    deadline_at_ms: float
    timeout_ms: float
    stubborn: bool = False
    ended_s: float | None = None
    outcome: str = ""
    output: Any = None

    @property
    def id(self) -> str:
        return ids.attempt_id(self.run_id, self.step, self.attempt)

    @property
    def runs(self) -> bool:
        return self.ended_s is None


@dataclass
class Journal:
    """All executions, and the cost of every model call (`metered`, by call id)."""

    world: World
    executions: list[Execution] = field(default_factory=list)
    of_attempt: dict[str, list[Execution]] = field(default_factory=dict)
    metered: dict[str, Decimal] = field(default_factory=dict)
    running: dict[int, Execution] = field(default_factory=dict)
    outputs: Iterator[int] = field(default_factory=count)
    """Numbers for outputs."""
    closed: bool = False
    ended: Callable[[Execution], None] = lambda execution: None

    def begin(self, context: Any, process: Process) -> Execution:
        step = context.step
        execution = Execution(
            run_id=step.run_id,
            step=step.step,
            attempt=step.attempt,
            delivery=context.delivery,
            node=step.node,
            type=step.type,
            worker=process.name,
            input=context.input,
            begun_s=self.world.now_s,
            dispatched_at_ms=step.dispatched_at_ms,
            deadline_at_ms=step.deadline_at_ms,
            timeout_ms=step.timeout_ms,
        )
        self.executions.append(execution)
        self.of_attempt.setdefault(execution.id, []).append(execution)
        self.running[id(execution)] = execution
        self.world.note(process.name, f"begins {execution.id} delivery {execution.delivery}")
        return execution

    def end(self, execution: Execution, outcome: str, output: Any = None) -> None:
        if self.closed or not execution.runs:
            return
        execution.ended_s = self.world.now_s
        execution.outcome = outcome
        execution.output = output
        self.running.pop(id(execution), None)
        self.world.note(execution.worker, f"ends {execution.id}: {outcome}")
        self.ended(execution)

    def died(self, process: Process) -> None:
        """End the executions of a worker that was killed."""
        for execution in [e for e in self.running.values() if e.worker == process.name]:
            self.end(execution, "killed")

    def spent(self, run_id: str) -> Decimal:
        """Return the total cost of a run's calls."""
        mark = run_id + ":"
        return sum(
            (cost for call_id, cost in self.metered.items() if call_id.startswith(mark)),
            Decimal(0),
        )
