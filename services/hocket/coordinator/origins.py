"""The runs that others repeat, as Postgres holds them: a run that has ended never changes, so what is
read here is the same at every reading."""

from hocket.coordinator.catalog import Catalog
from hocket.coordinator.core.records import restore
from hocket.coordinator.core.reuse import Reuse, reuse_of
from hocket.coordinator.core.state import Run
from hocket.coordinator.store import Store
from hocket.schemas.errors import RunUnknown
from hocket.schemas.messages import RunOrigin
from hocket.schemas.pipeline.plan import Plan
from hocket.schemas.repeats import StepPlace


class Origins:
    """Reads origin runs for intake, which checks them, and for partitions, which take over from
    them."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    async def run(self, tenant: str, asked: RunOrigin) -> Run:
        """Return the origin's own row, or raise RunUnknown."""
        run = (await self._store.known([asked.run_id])).get(asked.run_id)
        if run is None or run.tenant != tenant:
            raise RunUnknown(run_id=asked.run_id)
        return run

    async def place(self, asked: RunOrigin) -> StepPlace | None:
        """Return where the step stands that a re-run begins with, if it names one that there is."""
        if asked.from_step is None:
            return None
        return await self._store.place(asked.run_id, asked.from_step)

    async def reuse(self, tenant: str, asked: RunOrigin | None, plan: Plan) -> Reuse | None:
        """Return what a run of a plan takes over. A sub-run's origin may be missing, or have no end
        yet: then nothing is."""
        if asked is None:
            return None
        run = (await self._store.known([asked.run_id])).get(asked.run_id)
        if run is None or run.tenant != tenant or not run.ended:
            return None
        entry = await self._catalog.entry(run.tenant, run.pipeline, run.version)
        steps = await self._store.steps(run.run_id)
        return reuse_of(restore(run, steps, entry.plan), entry.plan, plan, asked)
