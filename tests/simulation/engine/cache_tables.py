"""The step cache's tables as dictionaries, as in `hocket.coordinator.storage.cache_store.CacheStore`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from hocket.coordinator.core.reuse.cache_entry import Claim, Entry, Verdict, seen, verdict
from hocket.coordinator.core.run.commands import LookUpCache, ReleaseCache
from hocket.coordinator.storage.cache_store import Answer, Filling
from simulation.engine.database import Database, asked
from simulation.engine.world import EPOCH_S, Process


@dataclass
class CacheRow:
    """One entry; times are the database's, in Unix milliseconds."""

    output: str | None = None
    filled_at_ms: float = 0.0
    fresh_until_ms: float = 0.0
    filled_run: str = ""
    filled_step: str = ""
    cost_usd: Decimal = Decimal(0)
    claim: Claim | None = None
    waiters: dict[tuple[str, str], float] = field(default_factory=dict)
    """Deadline for computing the value, by run and step, in order of arrival."""


class CacheTables:
    """The cache's statements, each executed at one instant."""

    def __init__(self, database: Database) -> None:
        self.rows: dict[str, CacheRow] = {}
        self._database = database

    @property
    def _now_ms(self) -> float:
        return 1_000 * (EPOCH_S + self._database.world.now_s)

    def look_up(self, asks: Sequence[LookUpCache]) -> list[Answer]:
        answers, now_ms = [], self._now_ms
        for ask in asks:
            row = self.rows.setdefault(ask.key, CacheRow())
            entry = self._entry(row)
            told = verdict(
                entry, run_id=ask.run_id, step=ask.step, ttl_ms=ask.ttl_ms, now_ms=now_ms
            )
            if told is Verdict.HIT:
                answers.append(
                    Answer(
                        key=ask.key,
                        run_id=ask.run_id,
                        step=ask.step,
                        output=row.output,
                        computed_by_run=row.filled_run,
                        computed_by_step=row.filled_step,
                        cost_usd=row.cost_usd,
                    )
                )
            elif told is Verdict.COMPUTE:
                row.claim = Claim(ask.run_id, ask.step, ask.claim_until_ms)
                answers.append(Answer(ask.key, ask.run_id, ask.step))
            else:
                assert entry.claim is not None, "somebody is waited for"
                row.claim = replace(seen(entry.claim, now_ms), holder_ended=False)
                row.waiters.setdefault((ask.run_id, ask.step), ask.claim_until_ms)
        return answers

    def fill(self, fillings: Iterable[Filling]) -> list[Answer]:
        answers = []
        for filling in {filling.key: filling for filling in fillings}.values():
            row = self.rows.setdefault(filling.key, CacheRow())
            row.output, row.cost_usd, row.claim = filling.output, filling.cost_usd, None
            row.filled_run, row.filled_step = filling.run_id, filling.step
            row.filled_at_ms = self._now_ms
            row.fresh_until_ms = row.filled_at_ms + filling.ttl_ms
            waiters, row.waiters = row.waiters, {}
            answers += [
                Answer(
                    key=filling.key,
                    run_id=run_id,
                    step=step,
                    output=filling.output,
                    computed_by_run=filling.run_id,
                    computed_by_step=filling.step,
                    cost_usd=filling.cost_usd,
                )
                for run_id, step in waiters
            ]
        return answers

    def release(self, releases: Sequence[ReleaseCache]) -> list[Answer]:
        answers = []
        for release in releases:
            row = self.rows.get(release.key)
            if row is not None:
                row.waiters.pop((release.run_id, release.step), None)
        for release in releases:
            row = self.rows.get(release.key)
            claim = None if row is None else row.claim
            if row is None or claim is None:
                continue
            if (claim.run_id, claim.step) != (release.run_id, release.step):
                continue
            row.claim = None
            if row.waiters:
                (run_id, step), until_ms = next(iter(row.waiters.items()))
                del row.waiters[run_id, step]
                row.claim = Claim(run_id, step, until_ms)
                answers.append(Answer(release.key, run_id, step))
        return answers

    def _entry(self, row: CacheRow) -> Entry:
        claim = row.claim
        if claim is not None:
            claim = replace(claim, holder_ended=self._has_ended(claim))
        if row.output is None or row.fresh_until_ms <= self._now_ms:
            return Entry(claim=claim)
        return Entry(row.filled_at_ms, row.fresh_until_ms, claim)

    def _has_ended(self, claim: Claim) -> bool:
        step = self._database.steps.get(claim.run_id, {}).get(claim.step)
        return step is not None and step["finished_at"] is not None


class SimulatedCacheStore:
    """The cache's store of one process."""

    def __init__(self, tables: CacheTables, database: Database, process: Process) -> None:
        self._tables = tables
        self._database = database
        self._process = process

    async def look_up(self, asks: Sequence[LookUpCache]) -> list[Answer]:
        return await asked(self._database, self._process, lambda: self._tables.look_up(asks))

    async def fill(self, fillings: Iterable[Filling]) -> list[Answer]:
        given = list(fillings)
        return await asked(self._database, self._process, lambda: self._tables.fill(given))

    async def release(self, releases: Sequence[ReleaseCache]) -> list[Answer]:
        return await asked(self._database, self._process, lambda: self._tables.release(releases))

    async def sweep(self, limit: int) -> int:
        return 0
