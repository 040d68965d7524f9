"""What is broken, when and for how long: drawn from a seed, so that a plan can be replayed.

A plan is endless; a play uses as much of it as its time allows. The faults are the same in each replay,
but the moment that each one hits depends on the machine.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

PROCESSES = ("coordinator", "coordinator-2", "worker", "worker-2", "gateway", "ledger")
TEAM = ("team", "team-2")
"""Processes of a team that has its own node types."""
SERVERS = ("nats", "postgres")
KILL, FREEZE, TERM, REWIND = "kill", "freeze", "term", "rewind"
KINDS = (
    *((KILL, target) for target in (*PROCESSES, *TEAM, *SERVERS)),
    *((FREEZE, target) for target in (*PROCESSES, *TEAM, *SERVERS)),
    (TERM, "coordinator"),
    (TERM, "coordinator-2"),
    (REWIND, "nats"),
)
MAX_GAP_S = 1.5
MAX_FREEZE_S = 6.0
"""Longer than a coordinator's lease and a worker's `ack_wait` in the play."""
MAX_TAIL_S = 1.0


@dataclass(frozen=True)
class Fault:
    """A fault that starts `gap_s` after the previous one and lasts `hold_s`, if it has a duration. For
    a rewind, `hold_s` is the time from the copy to the crash."""

    kind: str
    target: str
    gap_s: float
    hold_s: float

    @property
    def name(self) -> str:
        """The name under which it is counted."""
        return f"{self.kind} {self.target}"


def faults(seed: int, *, max_freeze_s: float = MAX_FREEZE_S) -> Iterator[Fault]:
    """Yield the plan of a seed, in random order: every kind occurs once before any occurs again."""
    dice = random.Random(f"chaos-{seed}")
    while True:
        kinds = list(KINDS)
        dice.shuffle(kinds)
        for kind, target in kinds:
            most = MAX_TAIL_S if kind == REWIND else max_freeze_s
            hold_s = dice.uniform(0.05, most) if kind in (FREEZE, REWIND) else 0.0
            yield Fault(kind, target, dice.uniform(0.0, MAX_GAP_S), hold_s)
