"""How the steps of a run's nodes are counted. Pure.

A node that is mapped or looped has a step of its own, around those of its items or rounds; all have the
node's path. Its own step tells what became of the node, and its items or rounds are counted: of a map
whose items loop, the items.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

OF_NODES = {"map": "role = 'map'", "loop": "role = 'loop'", "inner": "role NOT IN ('map', 'loop')"}
"""The steps of a node's path, the outermost first."""


class Counts(NamedTuple):
    """How many steps there are, and how many of them ended in which way."""

    steps: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int

    @property
    def state(self) -> str:
        """One word for how they ended."""
        if self.failed:
            return "failed"
        if self.succeeded + self.cancelled + self.skipped < self.steps:
            return "open"
        if self.cancelled:
            return "cancelled"
        return "succeeded" if self.succeeded else "skipped"


STATES = Counts._fields[1:]
COUNTS = ",\n       ".join(
    f"count(*) FILTER (WHERE {meant}) AS {name}_steps, "
    + ", ".join(
        f"count(*) FILTER (WHERE {meant} AND state = '{state}') AS {name}_{state}"
        for state in STATES
    )
    for name, meant in OF_NODES.items()
)
"""The columns of a node that `counted` reads, of a query that groups steps by path."""


def counted(row: Mapping[str, Any]) -> tuple[Counts, Counts]:
    """Return the counts of a node's own steps, of which a node within a map or a loop has several, and
    those of its items or rounds. They are the same if it is neither mapped nor looped, or has none."""
    found = [Counts(*(row[f"{name}_{field}"] for field in Counts._fields)) for name in OF_NODES]
    levels = [one for one in found if one.steps]
    return levels[0], levels[min(1, len(levels) - 1)]
