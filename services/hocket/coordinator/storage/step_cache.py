"""The step cache of a coordinator: its partitions' questions, fills and releases go to Postgres in
batches; the answers go to the logs of the runs that asked (`cache_answers.py`), whoever owns their
partitions.

States: idle, working (a batch at a time: outputs first, then releases, then questions), waiting
(Postgres is away: the batch is kept and tried again; or outputs wait until they are posted). Steps ask
again by themselves, so that questions are bounded by the steps in flight; of outputs and releases
beyond MAX_PENDING, and of outputs beyond MAX_PENDING_CHARS, the oldest are dropped, and the steps that
wait for them compute. Expired entries are swept every SWEEP_S.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import structlog
from pydantic_core import to_json

from hocket.coordinator.core.run.commands import FillCache, LookUpCache, ReleaseCache
from hocket.coordinator.core.run.faults import reason_of
from hocket.coordinator.metrics import CoordinatorMetrics
from hocket.coordinator.storage.cache_answers import CacheAnswers
from hocket.coordinator.storage.cache_store import Answer, CacheStore, Filling
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.errors import AWAY
from hocket.schemas.capabilities import Capabilities

MAX_BATCH = 200
"""The most outputs or releases in one transaction."""
MAX_QUESTIONS = 32
"""The same for questions, because the output that answers one may have half a megabyte."""
MAX_BATCH_CHARS = 16 * 1024 * 1024
"""The same for the outputs, unless a single one is longer."""
MAX_PENDING = 10_000
MAX_PENDING_CHARS = 64 * 1024 * 1024
"""The limit for outputs that wait, as JSON text: their objects may take ten times as much."""
SWEEP_S = 60.0
SWEEP_ROWS = 1_000
PAUSE_S = 0.5

log = structlog.get_logger(__name__)
T = TypeVar("T")
_Who = tuple[str, str]


class StepCache:
    """Looks up, fills and claims entries of the step cache."""

    def __init__(
        self,
        bus: Bus,
        store: CacheStore,
        metrics: CoordinatorMetrics,
        *,
        partitions: int,
        capabilities: Capabilities | None = None,
    ) -> None:
        self._answers = CacheAnswers(bus, capabilities, partitions=partitions)
        self._store = store
        self._metrics = metrics
        self._asks: dict[_Who, LookUpCache] = {}
        self._fills: dict[str, Filling] = {}
        self._fills_chars = 0
        self._releases: dict[_Who, ReleaseCache] = {}
        self._some = asyncio.Event()

    def look_up(self, ask: LookUpCache) -> None:
        """Ask for a step's output; asking again before the answer counts as the same question."""
        self._asks[ask.run_id, ask.step] = ask
        self._some.set()

    def fill(self, fill: FillCache) -> None:
        """Store a step's output and answer the steps that wait for it."""
        self._asks.pop((fill.run_id, fill.step), None)
        try:
            filling = _filling(fill)
        except ValueError as error:
            log.error("cache_failed", run_id=fill.run_id, reason=reason_of(error))
            return
        self._drop_fill(fill.key)
        self._fills[fill.key] = filling
        self._fills_chars += len(filling.output)
        while len(self._fills) > MAX_PENDING or self._fills_chars > MAX_PENDING_CHARS:
            self._drop_fill(next(iter(self._fills)))
        self._some.set()

    def release(self, release: ReleaseCache) -> None:
        """Forget that a step asked or computes."""
        who = (release.run_id, release.step)
        self._asks.pop(who, None)
        self._releases[who] = release
        if len(self._releases) > MAX_PENDING:
            self._releases.pop(next(iter(self._releases)))
        self._some.set()

    async def run(self) -> None:
        """Process what is pending; never returns, cancel to stop."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep())
            group.create_task(self._answers.run())
            while True:
                await self._some.wait()
                self._some.clear()
                await self._work()

    async def _work(self) -> None:
        """Process one batch of each kind of pending work. If a batch fails while Postgres is up,
        its items are processed one by one; an item that fails then is given up, because the steps
        concerned ask again."""
        await self._surely(self._fill, self._first_fills())
        await self._surely(self._release, _first(self._releases, MAX_BATCH))
        await self._surely(self._ask, _first(self._asks, MAX_QUESTIONS))
        if self._asks or self._fills or self._releases:
            self._some.set()

    def _first_fills(self) -> list[Filling]:
        """Remove and return the oldest outputs, as many as one transaction takes."""
        found: list[Filling] = []
        chars = 0
        for key in list(self._fills)[:MAX_BATCH]:
            chars += len(self._fills[key].output)
            if found and chars > MAX_BATCH_CHARS:
                break
            found.append(self._fills[key])
            self._drop_fill(key)
        return found

    def _drop_fill(self, key: str) -> None:
        dropped = self._fills.pop(key, None)
        if dropped is not None:
            self._fills_chars -= len(dropped.output)

    async def _surely(self, work: Callable[[list[Any]], Awaitable[None]], items: list[Any]) -> None:
        pending = [items] if items else []
        while pending:
            batch = pending.pop(0)
            try:
                await work(batch)
            except AWAY as error:
                log.warning("cache_waits", reason=reason_of(error))
                await asyncio.sleep(PAUSE_S)
                pending.insert(0, batch)
            except Exception as error:
                if len(batch) > 1:
                    pending += [[item] for item in batch]
                else:
                    log.error("cache_failed", run_id=batch[0].run_id, reason=reason_of(error))

    async def _fill(self, fillings: list[Filling]) -> None:
        tenants = {filling.key: filling.tenant for filling in fillings}
        await self._tell(await self._store.fill(fillings), tenants)

    async def _release(self, releases: list[ReleaseCache]) -> None:
        await self._tell(await self._store.release(releases), {})

    async def _ask(self, asks: list[LookUpCache]) -> None:
        tenants = {ask.key: ask.tenant for ask in asks}
        answers = await self._store.look_up(asks)
        self._metrics.cache("wait", len(asks) - len(answers))
        await self._tell(answers, tenants)

    async def _tell(self, answers: Sequence[Answer], tenants: Mapping[str, str]) -> None:
        """Have answers posted, given the tenants of their keys; those to releases have no output, and
        share a turn."""
        for answer in answers:
            self._metrics.cache("compute" if answer.output is None else "hit", 1)
            self._answers.add(tenants.get(answer.key, ""), answer)
        await self._answers.wait_for_room()

    async def _sweep(self) -> None:
        while True:
            try:
                swept = await self._store.sweep(SWEEP_ROWS)
            except Exception as error:  # tried again later
                log.warning("cache_not_swept", reason=reason_of(error))
                swept = 0
            await asyncio.sleep(0 if swept == SWEEP_ROWS else SWEEP_S)


def _first(pending: dict[Any, T], most: int) -> list[T]:
    """Remove and return the oldest of what is pending."""
    return [pending.pop(key) for key in list(islice(pending, most))]


def _filling(fill: FillCache) -> Filling:
    return Filling(
        key=fill.key,
        tenant=fill.tenant,
        run_id=fill.run_id,
        step=fill.step,
        ttl_ms=fill.ttl_ms,
        output=to_json(fill.output, inf_nan_mode="null").decode(),
        cost_usd=fill.cost_usd,
    )
