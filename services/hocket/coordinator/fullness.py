"""Whether the coordinators hold as many runs as they may, or a disk is nearly full: then no task is
taken in.

A run counts while it is in memory: from its acceptance to its end, but not while it is parked. Each
coordinator tells with its sign of life whether it is full; any one that is makes all of them leave
tasks where they are, in TASKS, for a task may belong to any partition. States: room, full (from
`max_runs` runs or MAX_RUN_BYTES on, or while the disk is low: `kit/disk_space.py`), and again room below
ROOM_SHARE of both. Sub-runs are always begun:
runs that are in memory wait for them. What was taken in before everybody heard comes on top.
"""

from collections.abc import Callable

from hocket.kit.disk_space import DiskSpace

MAX_RUNS = 20_000
"""In one coordinator, unless its settings say otherwise."""
MAX_RUN_BYTES = 256 * 1024 * 1024
"""Of the events that the runs were made of, in one coordinator."""
ROOM_SHARE = 0.9


class Fullness:
    """See the module. `held` tells how many runs are in memory here, and how many bytes they count."""

    def __init__(self, max_runs: int, held: Callable[[], tuple[int, int]], disk: DiskSpace) -> None:
        self.others = False
        """Whether another coordinator that lives says that it is full."""
        self._max_runs = max_runs
        self._held = held
        self._disk = disk
        self._full = False

    def here(self) -> bool:
        """Tell whether this coordinator is full."""
        runs, size_bytes = self._held()
        share = ROOM_SHARE if self._full else 1.0
        self._full = runs >= share * self._max_runs or size_bytes >= share * MAX_RUN_BYTES
        return self._full or self._disk.low

    @property
    def reason(self) -> str:
        """Why no task is taken in."""
        return self._disk.reason or "there are as many runs as there may be"

    def anywhere(self) -> bool:
        """Tell whether any coordinator is full."""
        return self.here() or self.others
