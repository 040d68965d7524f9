"""Whether the coordinators hold as many runs as they may, or a disk is nearly full: then no task is
taken in.

A run counts while it is in memory: from its acceptance to its end, but not while it is parked. Each
coordinator reports with its sign of life whether it is full; if any is, all of them leave tasks
where they are, in TASKS, because a task may belong to any partition. States: room, full (from
`max_runs` runs or MAX_RUN_BYTES on, or while the disk is low: `kit/process/limits/disk_space.py`),
and room again below ROOM_SHARE of both. Sub-runs are always begun, because runs that are in memory
wait for them. Tasks that are taken in before everybody knows are held in addition.

A coordinator that is full because of a few tenants names them: those that hold most of the bound
that was reached, each more than LEAST_SHARE, and as many of them as needed for all others together
to hold less than OTHERS_SHARE. While all full coordinators name some, tasks of other tenants can be
taken in, and those of the named tenants are refused: `waiting_tenants.py`.
"""

from collections.abc import Callable, Mapping

from hocket.kit.process.limits.disk_space import DiskSpace
from hocket.schemas.errors import ErrorClass, HocketError

MAX_RUNS = 20_000
"""For one coordinator, unless its settings say otherwise."""
MAX_RUN_BYTES = 256 * 1024 * 1024
"""The limit for the events that the runs were made of, in one coordinator."""
ROOM_SHARE = 0.9
LEAST_SHARE = 0.01
"""The share of a bound up to which a tenant is not named, so that at most ninety-nine are."""
OTHERS_SHARE = 0.5
"""The share of both bounds that all tenants which are not named may hold together. So a full
coordinator holds at most one and a half times its bounds, plus what the named tenants' runs grow
by."""
RETRY_AFTER_MS = 5_000
MIB = 1024 * 1024

Tenants = frozenset[str]


class TenantOverShare(HocketError):
    """The coordinators have as many runs as they are allowed, tenant `{tenant}` is one of the few that
    have most of them (more than {share_percent} % of one coordinator's {max_runs} runs or {max_mib}
    MiB), and other tenants' tasks wait. End or cancel some of its runs, and try again in
    {retry_after_ms} ms."""

    code = "tenant_over_share"
    error_class = ErrorClass.RATE_LIMITED
    retryable = True


class CapacityLimit:
    """Bounds the runs that a coordinator holds in memory. `held` returns how many runs are in
    memory here, and how many bytes they count; `held_by` returns the same for each tenant,
    `crowded` any other reason to take no task in."""

    def __init__(
        self,
        max_runs: int,
        held: Callable[[], tuple[int, int]],
        held_by: Callable[[], Mapping[str, tuple[int, int]]],
        disk: DiskSpace,
        crowded: Callable[[], str] = lambda: "",
    ) -> None:
        self._others: tuple[Tenants, ...] = ()
        """For each other live coordinator that reports to be full, the tenants that fill it."""
        self._max_runs = max_runs
        self._held = held
        self._held_by = held_by
        self._disk = disk
        self._crowded = crowded
        self._full = False
        self._tenants: Tenants = frozenset()
        self._theirs = (0, 0)
        """The runs and bytes of those tenants when they were last determined."""

    def heard(self, others: "tuple[Tenants, ...]") -> None:
        """Note which other coordinators are full: for each, the tenants that it names, if any."""
        self._others = others

    def here(self) -> bool:
        """Tell whether this coordinator is full."""
        runs, size_bytes = self._held()
        share = ROOM_SHARE if self._full else 1.0
        self._full = runs >= share * self._max_runs or size_bytes >= share * MAX_RUN_BYTES
        return self._full or bool(self._elsewhere)

    @property
    def reason(self) -> str:
        """Why no task is taken in."""
        return self._elsewhere or "there are as many runs as allowed"

    @property
    def _elsewhere(self) -> str:
        """Why it is full for a reason other than tenants' runs."""
        return self._disk.reason or self._crowded()

    def anywhere(self) -> bool:
        """Tell whether any coordinator is full."""
        return self.here() or bool(self._others)

    def look(self) -> Tenants:
        """Determine and return the tenants that make this coordinator full. This examines all
        tenants; to be called with each sign of life."""
        self._tenants, self._theirs = self._largest() if self.here() else (frozenset(), (0, 0))
        return self._filled_by()

    def over_share(self) -> Tenants:
        """Return the tenants without whose runs no coordinator would be full; none if a coordinator
        is full for another reason, or if the other tenants have used up their share."""
        found = [*self._others, *([self._filled_by()] if self.here() else [])]
        return frozenset().union(*found) if all(found) else frozenset()

    def refusal(self, tenant: str) -> TenantOverShare:
        """Return the error for a task of a tenant that is over its share."""
        return TenantOverShare(
            tenant=tenant,
            share_percent=round(100 * LEAST_SHARE),
            max_runs=self._max_runs,
            max_mib=MAX_RUN_BYTES // MIB,
            retry_after_ms=RETRY_AFTER_MS,
        )

    def _filled_by(self) -> Tenants:
        runs, size_bytes = self._held()
        have_theirs = self._have_their_share(runs - self._theirs[0], size_bytes - self._theirs[1])
        return frozenset() if have_theirs or self._elsewhere else self._tenants

    def _largest(self) -> tuple[Tenants, tuple[int, int]]:
        runs, size_bytes = self._held()
        by_runs = runs >= ROOM_SHARE * self._max_runs
        by_bytes = size_bytes >= ROOM_SHARE * MAX_RUN_BYTES

        def share(held: tuple[int, int]) -> float:
            of_bytes = by_bytes * held[1] / MAX_RUN_BYTES
            return max(by_runs * held[0] / self._max_runs, of_bytes)

        named: set[str] = set()
        theirs = (0, 0)
        for tenant, held in sorted(
            self._held_by().items(), key=lambda one: (share(one[1]), one[0]), reverse=True
        ):
            if not self._have_their_share(runs - theirs[0], size_bytes - theirs[1]):
                break
            if share(held) <= LEAST_SHARE:
                return frozenset(), (0, 0)
            named.add(tenant)
            theirs = (theirs[0] + held[0], theirs[1] + held[1])
        return frozenset(named), theirs

    def _have_their_share(self, runs: int, size_bytes: int) -> bool:
        """Tell whether the runs of tenants that are not named have reached their bound."""
        return runs >= OTHERS_SHARE * self._max_runs or size_bytes >= OTHERS_SHARE * MAX_RUN_BYTES
