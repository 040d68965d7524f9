"""Pipeline versions ready to run. Versions never change, so they are kept."""

import asyncio
import json
from collections import OrderedDict
from dataclasses import dataclass

from hocket.coordinator.core.run.plan.nodes import PipelinePlan
from hocket.coordinator.storage.pipelines.duration_stats import Durations
from hocket.coordinator.storage.pipelines.pipeline_store import PipelineStore
from hocket.coordinator.storage.pipelines.release import Release
from hocket.kit.process.clock import monotonic_ms
from hocket.schemas.errors import InvalidInput, PipelineArchived, PipelineUnknown
from hocket.schemas.pipeline.plan import Plan, compile_pipeline

MAX_PLANS = 1_000
LARGE_CHARS = 20_000
"""A version whose spec is longer is compiled in a thread: the templates of one may take a second."""
RELEASE_FOR_MS = 1_000.0
"""How long the choice of versions for new runs is cached before Postgres is asked again. A change of
it is answered when this much time has passed (`admin/pipelines/settling.py`)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A version with its plan, and the plan compiled for runs."""

    version: int
    plan: Plan
    compiled: PipelinePlan


class Catalog:
    """Compiled pipelines by tenant, name and version."""

    def __init__(self, store: PipelineStore, durations: Durations) -> None:
        self._store = store
        self._durations = durations
        self._entries: OrderedDict[tuple[str, str, int], Entry] = OrderedDict()
        self._releases: OrderedDict[tuple[str, str], tuple[Release, float]] = OrderedDict()

    async def entry(self, tenant: str, pipeline: str, version: int) -> Entry:
        """Return a version, or raise PipelineUnknown, or InvalidInput if only the version is missing."""
        key = (tenant, pipeline, version)
        entry = self._entries.get(key)
        if entry is None:
            return await self._load(tenant, pipeline, version)
        self._entries.move_to_end(key)
        return entry

    async def entry_for(
        self, tenant: str, pipeline: str, version: int | None, run_id: str
    ) -> Entry:
        """Return the version that a new run takes: the one that it names, otherwise the one that is
        chosen for it. Raises PipelineUnknown, PipelineArchived and InvalidInput."""
        release = await self._release(tenant, pipeline)
        if release.is_archived:
            raise PipelineArchived(tenant=tenant, pipeline=pipeline)
        return await self.entry(tenant, pipeline, version or release.version_for(run_id))

    async def _release(self, tenant: str, pipeline: str) -> Release:
        known = self._releases.get((tenant, pipeline))
        if known is not None and monotonic_ms() - known[1] < RELEASE_FOR_MS:
            return known[0]
        read_ms = monotonic_ms()  # what is committed from now on may be missing
        found = await self._store.release(tenant, pipeline)
        if found is None:
            raise PipelineUnknown(tenant=tenant, pipeline=pipeline)
        self._releases[tenant, pipeline] = (found, read_ms)
        self._releases.move_to_end((tenant, pipeline))
        if len(self._releases) > MAX_PLANS:
            self._releases.popitem(last=False)
        return found

    async def _load(self, tenant: str, pipeline: str, version: int) -> Entry:
        found = await self._store.spec(tenant, pipeline, version)
        if found is None:
            if await self._store.release(tenant, pipeline) is None:
                raise PipelineUnknown(tenant=tenant, pipeline=pipeline)
            reason = f"pipeline `{pipeline}` has no version {version}"
            cure = f"`hocket pipeline show {pipeline}` lists its versions."
            raise InvalidInput(field="version", reason=reason, cure=cure)
        await self._durations.load(tenant, pipeline)
        if len(found) <= LARGE_CHARS:
            entry = _compiled(version, found)
        else:
            entry = await asyncio.to_thread(_compiled, version, found)
        self._entries[tenant, pipeline, version] = entry
        if len(self._entries) > MAX_PLANS:
            self._entries.popitem(last=False)
        return entry


def _compiled(version: int, spec: str) -> Entry:
    plan = compile_pipeline(json.loads(spec), applied=True)
    return Entry(version, plan, PipelinePlan(plan))
