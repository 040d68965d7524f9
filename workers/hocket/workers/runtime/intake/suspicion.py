"""What the death of a worker is held against: which kinds of steps are on probation from their first
delivery. Pure. What else becomes of a dead worker's steps is told in `after_worker_death.py`.

A kind is what runs, for which tenant. The end of a worker is held against each kind that ran in it
(BESIDE), more where nothing else did (ALONE); a step that ends well takes a little of that back, one
that ran alone more. So a kind that ends workers stands out after two of them, and kinds that only ran
beside it come clear by what they do. `deaths` are those alone; they say how long a kind's steps wait
before the next is tried: twice as long after each, half as long after a step that was tried and ended.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

BESIDE = 20
ALONE = 100
WELL_BESIDE = 1
WELL_ALONE = 10
SUSPECT = 2 * BESIDE
"""So much held against a kind puts it on probation, until less than CLEAR is left."""
CLEAR = 20
MAX_DEBT = 2_000
MAX_KINDS = 1_000
MAX_DOUBLINGS = 6

Changed = Callable[[str, int, int], None]


class Suspicion:
    """What is held against kinds; `changed` is told of each change: the debt, and the deaths alone."""

    def __init__(self, changed: Changed) -> None:
        self.tried: set[str] = set()
        """The kinds that are on probation."""
        self._changed = changed
        self._debts: dict[str, int] = {}
        self._deaths: defaultdict[str, int] = defaultdict(int)

    def __bool__(self) -> bool:
        return bool(self._debts)

    def take_over(self, kinds: Mapping[str, tuple[int, int]]) -> None:
        """Hold against kinds what another worker did."""
        for kind, (debt, deaths) in kinds.items():
            self._deaths[kind] = max(self._deaths[kind], deaths)
            self._set(kind, max(debt, self._debts.get(kind, 0)))

    def add(self, kinds: Iterable[str]) -> None:
        """Put kinds on probation that are known to end workers."""
        for kind in kinds:
            self._set(kind, max(SUSPECT, self._debts.get(kind, 0)))

    def died(self, kinds: Iterable[str]) -> None:
        """Hold an end of a worker against the kinds that ran beside each other in it."""
        for kind in set(kinds):
            self._set(kind, self._debts.get(kind, 0) + BESIDE)

    def died_alone(self, kind: str) -> None:
        """Hold an end of a worker against the only kind that ran in it."""
        self._deaths[kind] += 1
        self._set(kind, self._debts.get(kind, 0) + ALONE)

    def ended_well(self, kind: str, *, alone: bool) -> None:
        """Take back a little."""
        debt = self._debts.get(kind)
        if debt is None:
            return
        if alone:
            self._deaths[kind] //= 2
        self._set(kind, debt - (WELL_ALONE if alone else WELL_BESIDE))

    def doublings(self, kind: str) -> int:
        """Return how often the wait before a step of the kind is tried has doubled."""
        return min(self._deaths.get(kind, 0), MAX_DOUBLINGS)

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
