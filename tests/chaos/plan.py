"""What is broken, when and for how long: drawn from a seed, so that a plan can be played again.

A plan is endless; a play takes as much of it as its time allows. What a fault meets depends on the
machine: the plan repeats, the moment does not.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

PROCESSES = ("coordinator", "coordinator-2", "worker", "worker-2", "gateway", "ledger")
TEAM = ("team", "team-2")
"""Processes of a team that has node types of its own."""
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
"""Longer than a coordinator's lease and than a worker's `ack_wait` in the play."""
MAX_TAIL_S = 1.0


@dataclass(frozen=True)
class Fault:
    """A fault: `gap_s` after the one before, lasting `hold_s` where it lasts (for a rewind: how long
    before its crash the copy is taken)."""

    kind: str
    target: str
    gap_s: float
    hold_s: float

    @property
    def name(self) -> str:
        """What it is counted as."""
        return f"{self.kind} {self.target}"


def faults(seed: int, *, max_freeze_s: float = MAX_FREEZE_S) -> Iterator[Fault]:
    """Yield the plan of a seed: every kind comes once before any comes again, in a drawn order."""
    dice = random.Random(f"chaos-{seed}")
    while True:
        kinds = list(KINDS)
        dice.shuffle(kinds)
        for kind, target in kinds:
            most = MAX_TAIL_S if kind == REWIND else max_freeze_s
            hold_s = dice.uniform(0.05, most) if kind in (FREEZE, REWIND) else 0.0
            yield Fault(kind, target, dice.uniform(0.0, MAX_GAP_S), hold_s)
