"""Which kinds of steps are blamed for the deaths of workers, and so are on probation from their first
delivery. Pure. `after_worker_death.py` describes what else happens to a dead worker's steps.

A kind is what runs, for which tenant. A worker's death is held against each kind that was running in it
(BESIDE), and more if nothing else was (ALONE). A step that ends well takes back a little of that, and
more if it ran alone. So a kind that kills workers stands out after two deaths, and kinds that merely ran
beside it are cleared by their good steps. `deaths` counts deaths while alone. That decides how long the
next step of the kind waits: twice as long after each death, half as long after a step that was tried
alone and ended.

Both are bounded, because machines and operators kill workers too: after hundreds of such deaths, steps
that are not to blame are cleared within minutes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

BESIDE = 20
ALONE = 100
WELL_BESIDE = 1
WELL_ALONE = 10
SUSPECT = 2 * BESIDE
"""The debt that puts a kind on probation, until less than CLEAR is left."""
CLEAR = 20
MAX_DEBT = 300
MAX_KINDS = 1_000
MAX_DOUBLINGS = 4

Changed = Callable[[str, int, int], None]


class Suspicion:
    """The debt of each kind. `changed` is called with a kind, its debt, and its deaths while alone."""

    def __init__(self, changed: Changed) -> None:
        self.tried: set[str] = set()
        """The kinds that are on probation."""
        self._changed = changed
        self._debts: dict[str, int] = {}
        self._deaths: defaultdict[str, int] = defaultdict(int)

    def __bool__(self) -> bool:
        return bool(self._debts)

    def take_over(self, kinds: Mapping[str, tuple[int, int]]) -> None:
        """Take over the debts and deaths that another worker recorded."""
        for kind, (debt, deaths) in kinds.items():
            self._deaths[kind] = min(max(self._deaths[kind], deaths), MAX_DOUBLINGS)
            self._set(kind, max(debt, self._debts.get(kind, 0)))

    def add(self, kinds: Iterable[str]) -> None:
        """Put kinds that are known to kill workers on probation."""
        for kind in kinds:
            self._set(kind, max(SUSPECT, self._debts.get(kind, 0)))

    def died(self, kinds: Iterable[str]) -> None:
        """Hold a worker's death against the kinds that were running in it together."""
        for kind in set(kinds):
            self._set(kind, self._debts.get(kind, 0) + BESIDE)

    def died_alone(self, kind: str) -> None:
        """Hold a worker's death against the kind that was running in it alone."""
        self._deaths[kind] = min(self._deaths[kind] + 1, MAX_DOUBLINGS)
        self._set(kind, self._debts.get(kind, 0) + ALONE)

    def ended_well(self, kind: str, *, alone: bool) -> None:
        """Reduce a kind's debt, because one of its steps ended well."""
        debt = self._debts.get(kind)
        if debt is None:
            return
        if alone:
            self._deaths[kind] //= 2
        self._set(kind, debt - (WELL_ALONE if alone else WELL_BESIDE))

    def doublings(self, kind: str) -> int:
        """Return how often the wait before the kind's next step is tried has doubled."""
        return self._deaths.get(kind, 0)

    def _set(self, kind: str, debt: int) -> None:
        if debt <= 0 or (kind not in self._debts and len(self._debts) >= MAX_KINDS):
            debt = 0
            self._debts.pop(kind, None)
            self._deaths.pop(kind, None)
        else:
            self._debts[kind] = debt = min(debt, MAX_DEBT)
        if debt >= SUSPECT:
            self.tried.add(kind)
        elif debt < CLEAR:
            self.tried.discard(kind)
        self._changed(kind, debt, self._deaths.get(kind, 0))
