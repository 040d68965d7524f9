"""Whether the coordinators hold as many runs as they may, or a disk is nearly full: then no task is
taken in.

A run counts while it is in memory: from its acceptance to its end, but not while it is parked. Each
coordinator tells with its sign of life whether it is full; any one that is makes all of them leave
tasks where they are, in TASKS, for a task may belong to any partition. States: room, full (from
`max_runs` runs or MAX_RUN_BYTES on, or while the disk is low: `kit/disk_space.py`), and again room below
ROOM_SHARE of both. Sub-runs are always begun:
runs that are in memory wait for them. What was taken in before everybody heard comes on top.

A coordinator that is full because of one tenant, whose runs take more than TENANT_SHARE of each bound
that was reached, says whose they are, as long as all others' take less than OTHERS_SHARE. While all that
are full say so, tasks of other tenants can be taken in, and that tenant's refused: `waiting_tenants.py`.
"""

from collections.abc import Callable, Mapping

from hocket.kit.process.disk_space import DiskSpace
from hocket.schemas.errors import ErrorClass, HocketError

MAX_RUNS = 20_000
"""In one coordinator, unless its settings say otherwise."""
MAX_RUN_BYTES = 256 * 1024 * 1024
"""Of the events that the runs were made of, in one coordinator."""
ROOM_SHARE = 0.9
TENANT_SHARE = 0.5
"""Of a bound: beyond it, a tenant is what makes a coordinator full."""
OTHERS_SHARE = 0.5
"""Of both bounds: where one tenant is over its share, all others together have so much. So a coordinator
that is full holds one and a half times its bounds at most, and what that tenant's runs grow by."""
RETRY_AFTER_MS = 5_000
MIB = 1024 * 1024


class TenantOverShare(HocketError):
    """The coordinators have as many runs as they may, tenant `{tenant}` has more than its share of them
    ({share_percent} % of one coordinator's {max_runs} runs or {max_mib} MiB), and other tenants' tasks
    wait. End or cancel some of its runs, and try again in {retry_after_ms} ms."""

    code = "tenant_over_share"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class CapacityLimit:
    """See the module. `held` tells how many runs are in memory here, and how many bytes they count;
    `held_by` the same of each tenant."""

    def __init__(
        self,
        max_runs: int,
        held: Callable[[], tuple[int, int]],
        held_by: Callable[[], Mapping[str, tuple[int, int]]],
        disk: DiskSpace,
    ) -> None:
        self.others: tuple[str, ...] = ()
        """Of each other coordinator that lives and says that it is full, the tenant that fills it: ""
        where it names none."""
        self._max_runs = max_runs
        self._held = held
        self._held_by = held_by
        self._disk = disk
        self._full = False
        self._tenant = ""
        self._theirs = (0, 0)
        """What that tenant's runs were when we last looked."""

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
        return self.here() or bool(self.others)

    def look(self) -> str:
        """Find the tenant that makes this coordinator full, and return it; "" where there is none. It
        looks at all tenants: call it with each sign of life."""
        self._tenant, self._theirs = self._largest() if self.here() else ("", (0, 0))
        return self._filled_by()

    def over_share(self) -> frozenset[str]:
        """Return the tenants without whose runs no coordinator would be full; none where one is full
        for another reason, or the others have their share."""
        tenants = frozenset(self.others)
        if self.here():
            tenants |= {self._filled_by()}
        return frozenset() if "" in tenants else tenants

    def refusal(self, tenant: str) -> TenantOverShare:
        """Return what a task is told of a tenant that is over its share."""
        return TenantOverShare(
            tenant=tenant,
            share_percent=round(100 * TENANT_SHARE),
            max_runs=self._max_runs,
            max_mib=MAX_RUN_BYTES // MIB,
            retry_after_ms=RETRY_AFTER_MS,
        )

    def _filled_by(self) -> str:
        runs, size_bytes = self._held()
        have_theirs = (
            runs - self._theirs[0] >= OTHERS_SHARE * self._max_runs
            or size_bytes - self._theirs[1] >= OTHERS_SHARE * MAX_RUN_BYTES
        )
        return "" if have_theirs or self._disk.low else self._tenant

    def _largest(self) -> tuple[str, tuple[int, int]]:
        runs, size_bytes = self._held()
        by_runs = runs >= ROOM_SHARE * self._max_runs
        by_bytes = size_bytes >= ROOM_SHARE * MAX_RUN_BYTES
        if not by_runs and not by_bytes:  # it is the disk
            return "", (0, 0)
        over = {
            tenant: theirs
            for tenant, theirs in self._held_by().items()
            if (not by_runs or theirs[0] > TENANT_SHARE * self._max_runs)
            and (not by_bytes or theirs[1] > TENANT_SHARE * MAX_RUN_BYTES)
        }
        tenant = max(over, key=lambda tenant: (over[tenant], tenant), default="")
        return tenant, over.get(tenant, (0, 0))
