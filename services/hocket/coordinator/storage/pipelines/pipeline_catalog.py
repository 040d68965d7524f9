"""Pipeline versions ready to run. Versions never change, so they are kept."""

import json
from collections import OrderedDict
from dataclasses import dataclass

from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import PipelineUnknown
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

MAX_PLANS = 1_000
LATEST_FOR_MS = 1_000.0
"""How long "the newest version" is believed before Postgres is asked again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A version and its plan, also compiled for runs."""

    version: int
    plan: Plan
    compiled: PipelinePlan


class Catalog:
    """Compiled pipelines by tenant, name and version."""

    def __init__(self, store: PipelineStore, durations: Durations) -> None:
        self._store = store
        self._durations = durations
        self._entries: OrderedDict[tuple[str, str, int], Entry] = OrderedDict()
        self._latest: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    async def entry(self, tenant: str, pipeline: str, version: int | None) -> Entry:
        """Return a version (the newest without one), or raise PipelineUnknown."""
        if not version:
            version = await self._newest(tenant, pipeline)
        key = (tenant, pipeline, version)
        entry = self._entries.get(key)
        if entry is None:
            return await self._load(tenant, pipeline, version)
        self._entries.move_to_end(key)
        return entry

    async def _newest(self, tenant: str, pipeline: str) -> int:
        known = self._latest.get((tenant, pipeline))
        if known is not None and monotonic_ms() - known[1] < LATEST_FOR_MS:
            return known[0]
        found = await self._store.spec(tenant, pipeline, None)
        if found is None:
            raise PipelineUnknown(tenant=tenant, pipeline=pipeline)
        self._latest[tenant, pipeline] = (found[0], monotonic_ms())
        self._latest.move_to_end((tenant, pipeline))
        if len(self._latest) > MAX_PLANS:
            self._latest.popitem(last=False)
        return found[0]

    async def _load(self, tenant: str, pipeline: str, version: int) -> Entry:
        found = await self._store.spec(tenant, pipeline, version)
        if found is None:
            raise PipelineUnknown(tenant=tenant, pipeline=f"{pipeline} version {version}")
        await self._durations.load(tenant, pipeline)
        plan = compile_pipeline(json.loads(found[1]), applied=True)
        entry = Entry(version, plan, PipelinePlan(plan))
        self._entries[tenant, pipeline, version] = entry
        if len(self._entries) > MAX_PLANS:
            self._entries.popitem(last=False)
        return entry
