"""Pipeline versions ready to run, with what to expect of their nodes. Versions never change, so they
are kept; what they are expected to take follows the measured durations."""

import json
from collections import OrderedDict
from dataclasses import dataclass, field

from hocket.coordinator.core.deadlines import Estimate, Outlook, observe, outlook
from hocket.coordinator.store import Store
from hocket.kit.clock import monotonic_ms
from hocket.schemas.errors import PipelineUnknown
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

MAX_PLANS = 1_000
LATEST_FOR_MS = 1_000.0
"""How long "the newest version" is believed before Postgres is asked again."""
OUTLOOK_FOR_MS = 1_000.0


@dataclass(slots=True)
class Entry:
    """A version's plan and its present outlook."""

    tenant: str
    version: int
    plan: Plan
    outlook: Outlook
    looked_at_ms: float


@dataclass(slots=True)
class _Measured:
    durations: dict[str, Estimate] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Catalog:
    """See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: OrderedDict[tuple[str, str, int], Entry] = OrderedDict()
        self._latest: dict[tuple[str, str], tuple[int, float]] = {}
        self._measured: dict[tuple[str, str], _Measured] = {}

    async def entry(self, tenant: str, pipeline: str, version: int | None) -> Entry:
        """Return a version (the newest without one), or raise PipelineUnknown."""
        if not version:
            version = await self._newest(tenant, pipeline)
        key = (tenant, pipeline, version)
        entry = self._entries.get(key)
        if entry is None:
            entry = await self._load(tenant, pipeline, version)
        elif monotonic_ms() - entry.looked_at_ms > OUTLOOK_FOR_MS:
            self._look(entry, pipeline)
        return entry

    def ready(self, tenant: str, pipeline: str, version: int) -> Entry | None:
        """Return a version that was used before, without asking Postgres."""
        return self._entries.get((tenant, pipeline, version))

    def measured(self, tenant: str, pipeline: str, path: str, duration_ms: float) -> None:
        """Take in how long a node took."""
        measured = self._measured.setdefault((tenant, pipeline), _Measured())
        measured.durations[path] = observe(measured.durations.get(path), duration_ms)
        measured.changed.add(path)

    async def keep(self) -> None:
        """Write the estimates that changed since the last time."""
        rows = []
        for (tenant, pipeline), measured in self._measured.items():
            rows += [(tenant, pipeline, p, measured.durations[p]) for p in sorted(measured.changed)]
            measured.changed.clear()
        if rows:
            await self._store.keep_durations(rows)

    async def _newest(self, tenant: str, pipeline: str) -> int:
        known = self._latest.get((tenant, pipeline))
        if known is not None and monotonic_ms() - known[1] < LATEST_FOR_MS:
            return known[0]
        found = await self._store.spec(tenant, pipeline, None)
        if found is None:
            raise PipelineUnknown(tenant=tenant, pipeline=pipeline)
        self._latest[tenant, pipeline] = (found[0], monotonic_ms())
        return found[0]

    async def _load(self, tenant: str, pipeline: str, version: int) -> Entry:
        found = await self._store.spec(tenant, pipeline, version)
        if found is None:
            raise PipelineUnknown(tenant=tenant, pipeline=f"{pipeline} version {version}")
        if (tenant, pipeline) not in self._measured:
            durations = await self._store.durations(tenant, pipeline)
            self._measured[tenant, pipeline] = _Measured(durations)
        entry = Entry(tenant, version, compile_pipeline(json.loads(found[1])), {}, 0.0)
        self._look(entry, pipeline)
        self._entries[tenant, pipeline, version] = entry
        if len(self._entries) > MAX_PLANS:
            self._entries.popitem(last=False)
        return entry

    def _look(self, entry: Entry, pipeline: str) -> None:
        measured = self._measured.get((entry.tenant, pipeline))
        entry.outlook = outlook(entry.plan, measured.durations if measured else {})
        entry.looked_at_ms = monotonic_ms()
