"""Postgres at the level of the coordinator's store: tables as dictionaries, one statement at a time.

A statement travels to the database, takes effect there at one instant, and its answer travels back; it
takes effect even if the caller dies in between. The database may be down (requests fail, and may have
taken effect or not), be slow, or lose an answer. As with the real tables, times come back in whole
microseconds, and JSON in the form of `jsonb`.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any

import asyncpg
from pydantic_core import from_json, to_json

from hocket.coordinator.core.run.ends.notification_watermark import NOTHING, NotificationWatermark
from hocket.coordinator.core.run.state.columns import (
    ATTEMPT_COLUMNS,
    KEPT_COLUMNS,
    RUN_COLUMNS,
    SPENDING_COLUMNS,
    STEP_COLUMNS,
)
from hocket.coordinator.core.run.state.restore import StoredRun, readable
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.core.time.duration_estimates import Estimate
from hocket.coordinator.core.time.pipeline_forecasts import KeptEstimate
from hocket.coordinator.flow.places import FlowQueue
from hocket.coordinator.storage.commit_batch import MAX_STATEMENT_CHARS, Batch
from hocket.coordinator.storage.pipelines.release import Release
from hocket.coordinator.storage.store import Offset, PartitionLost
from hocket.schemas.repeats import StepPlace
from simulation.engine.flow_tables import FlowTables
from simulation.engine.world import Process, World

Row = dict[str, Any]
UNSTORABLE = "no-postgres-stores-this"
"""A row that contains this text is refused."""
_RUN_FIXED = frozenset({"run_id", "partition", "tenant", "pipeline", "input", "labels"})
_STEP_FIXED = frozenset({"run_id", "key", "path", "type"})


@dataclass
class DatabaseWeather:
    """The current condition of the database."""

    latency_s: tuple[float, float] = (0.0002, 0.002)
    slow_s: float = 0.0
    down: bool = False
    lose_answer_chance: float = 0.0


@dataclass(slots=True)
class PartitionRow:
    epoch: int = 0
    owner: str = ""
    applied_seq: int = 0
    applied_msg_id: str = ""
    told: NotificationWatermark = NOTHING
    marked_in: int = 0
    batch: int = 0


@dataclass
class Database:
    """The tables. `observers` are called after every commit."""

    world: World
    weather: DatabaseWeather = field(default_factory=DatabaseWeather)
    partitions: dict[int, PartitionRow] = field(default_factory=dict)
    runs: dict[str, Row] = field(default_factory=dict)
    steps: dict[str, dict[str, Row]] = field(default_factory=dict)
    attempts: dict[tuple[str, str, int, str], Row] = field(default_factory=dict)
    outlooks: dict[int, dict[tuple[str, ...], tuple[float, ...]]] = field(default_factory=dict)
    estimates: dict[tuple[str, str], dict[str, Estimate]] = field(default_factory=dict)
    pipelines: dict[tuple[str, str], dict[int, str]] = field(default_factory=dict)
    releases: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Fields of a `Release` that were chosen for a pipeline, if any."""
    observers: list[Callable[[str, Any], None]] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Runs with a refused row: `run`, or `attempt` if only rows of attempts were refused."""
    refusals: int = 0
    """Number of commits that were refused because of a row."""

    def __post_init__(self) -> None:
        self.dice = self.world.dice("database")
        self.flow = FlowTables(self.world)

    def latency_s(self) -> float:
        low, high = self.weather.latency_s
        return low + (high - low) * self.dice.random() + self.weather.slow_s * self.dice.random()

    def tell(self, what: str, detail: Any) -> None:
        for observer in self.observers:
            observer(what, detail)

    def apply(self, tenant: str, document: Mapping[str, Any]) -> None:
        """Add a version of a pipeline."""
        versions = self.pipelines.setdefault((tenant, document["pipeline"]), {})
        versions[len(versions) + 1] = to_json(document).decode()

    # ---- statements, each executed at one instant -------------------------------------------

    def own(self, partition: int, owner: str) -> Offset:
        row = self.partitions.setdefault(partition, PartitionRow())
        row.epoch += 1
        row.owner = owner
        row.batch = 0
        self.world.note("postgres", f"partition {partition} epoch {row.epoch} is {owner}'s")
        self.tell("owned", (partition, row.epoch, owner))
        told = (
            row.told if row.marked_in == row.epoch - 1 else NotificationWatermark(row.told.told_ms)
        )
        return Offset(row.epoch, row.applied_seq, row.applied_msg_id, told)

    def commit(self, batch: Batch) -> list[FlowQueue]:
        try:
            self.check(batch)
        except PartitionLost:
            raise
        except (asyncpg.PostgresError, UnicodeError) as error:
            self.refusals += 1
            self.world.note("postgres", f"refuses a batch: {type(error).__name__}")
            raise
        self.write(batch)
        touched = self.flow.write(batch)
        self.tell("committed", batch)
        return touched

    def check(self, batch: Batch) -> None:
        """Raise the error with which Postgres would refuse the batch."""
        for partition, (epoch, _, _) in sorted(batch.offsets.items()):
            row = self.partitions.get(partition)
            if row is None or row.epoch != epoch:
                self.world.note("postgres", f"refuses epoch {epoch} of partition {partition}")
                raise PartitionLost(partition=partition, epoch=epoch)
            assert row.batch <= batch.numbers.get(partition, 0), "a batch comes late"
        for columns, rows in (
            (RUN_COLUMNS, batch.runs),
            (STEP_COLUMNS, batch.steps),
            (ATTEMPT_COLUMNS, batch.attempts),
            (SPENDING_COLUMNS, batch.spending),
        ):
            for values in rows:
                self._refuse_unstorable(columns, values)
        accepted = {values[0] for values in batch.runs} | self.runs.keys()
        for values in (*batch.steps, *batch.attempts):
            if values[0] not in accepted:
                raise asyncpg.ForeignKeyViolationError(f"step of unknown run {values[0]}")

    def _refuse_unstorable(self, columns: Mapping[str, str], values: Sequence[Any]) -> None:
        try:
            _refuse_unstorable(columns, values)
        except (asyncpg.PostgresError, UnicodeError):
            what = "attempt" if columns is ATTEMPT_COLUMNS else "run"
            if self.refused.get(values[0]) != "run":
                self.refused[values[0]] = what
            raise

    def write(self, batch: Batch) -> None:
        """Write a batch whose epochs are still valid."""
        for partition, (_, seq, msg_id) in batch.offsets.items():
            row = self.partitions[partition]
            row.applied_seq, row.applied_msg_id = seq, str(msg_id)
            row.batch = batch.numbers.get(partition, 0)
            if (told := batch.told.get(partition)) is not None:
                told_ms, acked_ms, acked_at_ms = (round(t * 1_000) / 1_000 for t in astuple(told))
                row.told = NotificationWatermark(
                    max(row.told.told_ms, told_ms), acked_ms, acked_at_ms
                )
                row.marked_in = row.epoch
        for values in batch.runs:
            self._write_run(_row(RUN_COLUMNS, values))
        for values in batch.steps:
            self._write_step(_row(STEP_COLUMNS, values))
        for partition, *key, weight, mean_ms, variance in batch.outlooks:
            self.outlooks.setdefault(partition, {})[tuple(key)] = (weight, mean_ms, variance)
        for values in batch.attempts:
            attempt = _row(ATTEMPT_COLUMNS, values)
            key = (attempt["run_id"], attempt["key"], attempt["attempt"], attempt["outcome"])
            self.attempts.setdefault(key, attempt)
        for run_id in batch.closed:
            self._close(run_id)
        for values in batch.spending:
            self._write_spending(_row(SPENDING_COLUMNS, values))
        self.world.note(
            "postgres",
            f"commits {dict(sorted(batch.offsets.items()))} runs={len(batch.runs)} "
            f"steps={len(batch.steps)}",
        )

    def in_flight(self, partition: int) -> list[StoredRun]:
        rows = [
            row
            for row in self.runs.values()
            if row["partition"] == partition
            and row["finished_at"] is None
            and row["parked_until"] is None
        ]
        rows.sort(key=lambda row: (row["accepted_at"], row["run_id"]))
        return [self._stored(row) for row in rows]

    def row(self, run_id: str) -> Row | None:
        row = self.runs.get(run_id)
        return None if row is None else _read(RUN_COLUMNS, row)

    def stored(self, run_id: str) -> StoredRun | None:
        row = self.runs.get(run_id)
        return None if row is None else self._stored(row)

    def _stored(self, row: Row) -> StoredRun:
        steps = self.steps.get(row["run_id"], {}).values()
        return StoredRun(_read(RUN_COLUMNS, row), [_read(STEP_COLUMNS, step) for step in steps])

    def stored_for_events(self, run_id: str) -> StoredRun | None:
        found = self.stored(run_id)
        if found is None or found.row["finished_at"] is None:
            return found
        return StoredRun(found.row, [{**one, "input": None, "output": None} for one in found.steps])

    def all_stored_for_events(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        found = {run_id: self.stored_for_events(run_id) for run_id in run_ids}
        return {run_id: stored for run_id, stored in found.items() if stored is not None}

    def parked(self, partition: int, until_ms: float, limit: int) -> list[tuple[str, float]]:
        found = sorted(
            (row["parked_until"], row["run_id"])
            for row in self.runs.values()
            if row["partition"] == partition and row["parked_until"] is not None
        )
        return [(run_id, at_ms) for at_ms, run_id in found if at_ms <= until_ms][:limit]

    def ended_since(self, partition: int, since_ms: float) -> list[Run]:
        rows = [
            row
            for row in self.runs.values()
            if row["partition"] == partition
            and row["finished_at"] is not None
            and row["finished_at"] >= since_ms
        ]
        rows.sort(key=lambda row: (row["finished_at"], row["run_id"]))
        return [readable(_read(RUN_COLUMNS, row))[0] for row in rows]

    def known(self, run_ids: Sequence[str]) -> dict[str, Run]:
        return {
            run_id: readable(_read(RUN_COLUMNS, self.runs[run_id]))[0]
            for run_id in run_ids
            if run_id in self.runs
        }

    def place(self, run_id: str, step: str) -> StepPlace | None:
        row = self.steps.get(run_id, {}).get(step)
        if row is None:
            return None
        facts = from_json(row["facts"] or "{}")
        return StepPlace(path=row["path"], role=row["role"], home=facts.get("home", ""))

    def spec(self, tenant: str, pipeline: str, version: int) -> str | None:
        return self.pipelines.get((tenant, pipeline), {}).get(version)

    def release(self, tenant: str, pipeline: str) -> Release | None:
        newest = max(self.pipelines.get((tenant, pipeline), {}), default=0)
        return Release(newest, **self.releases.get((tenant, pipeline), {})) if newest else None

    def durations(self, tenant: str, pipeline: str) -> dict[str, Estimate]:
        return dict(self.estimates.get((tenant, pipeline), {}))

    def outlook(self, partition: int) -> list[KeptEstimate]:
        return [
            KeptEstimate(tenant, pipeline, path, Estimate(mean_ms, variance, weight))
            for (tenant, pipeline, path), (weight, mean_ms, variance) in self.outlooks.get(
                partition, {}
            ).items()
        ]

    def keep_durations(self, kept: Sequence[tuple[str, str, str, Estimate]]) -> None:
        for tenant, pipeline, path, estimate in kept:
            self.estimates.setdefault((tenant, pipeline), {})[path] = estimate

    # ---- rows -------------------------------------------------------------------------------

    def _write_run(self, row: Row) -> None:
        assert (row["status"] == "running") == (row["finished_at"] is None), row
        found = self.runs.get(row["run_id"])
        if found is None:
            self.runs[row["run_id"]] = row
        elif found["finished_at"] is None or found["status"] == "rejected":
            found.update({name: row[name] for name in row if name not in _RUN_FIXED})

    def _write_spending(self, news: Row) -> None:
        run = self.runs.get(news["run_id"])
        if run is not None and run["finished_at"] is not None:
            run["spent_usd"] = max(Decimal(run["spent_usd"]), news["spent_usd"])
            if news["run_facts"] is not None:
                facts = from_json(run["facts"] or "{}") | from_json(news["run_facts"])
                run["facts"] = to_json(facts).decode()
        step = self.steps.get(news["run_id"], {}).get(news["key"])
        if step is not None:
            facts = from_json(step["facts"] or "{}") | from_json(news["facts"])
            step["facts"] = to_json(facts).decode()

    def _close(self, run_id: str) -> None:
        ended_at = self.runs[run_id]["finished_at"] if run_id in self.runs else None
        for step in self.steps.get(run_id, {}).values():
            if ended_at is not None and step["finished_at"] is None:
                step.update(state="cancelled", finished_at=ended_at, wake_at=None)

    def _write_step(self, row: Row) -> None:
        steps = self.steps.setdefault(row["run_id"], {})
        found = steps.get(row["key"])
        if found is None:
            steps[row["key"]] = row
        else:
            kept = {name: found[name] for name in KEPT_COLUMNS if row[name] is None}
            found.update({name: row[name] for name in row if name not in _STEP_FIXED} | kept)


class SimulatedStore:
    """The store of one process, on the shared database: a `hocket.coordinator.storage.store.Store`."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process

    async def acquire(self, partition: int, owner: str) -> Offset:
        return await self._ask(lambda: self._database.own(partition, owner))

    async def commit(self, batch: Batch, max_chars: int = MAX_STATEMENT_CHARS) -> list[FlowQueue]:
        touched: list[FlowQueue] = await self._ask(lambda: self._database.commit(batch))
        return touched

    async def rehearse(self, batch: Batch) -> None:
        await self._ask(lambda: self._database.check(batch))

    async def in_flight(self, partition: int) -> list[StoredRun]:
        return await self._ask(lambda: self._database.in_flight(partition))

    async def row(self, run_id: str) -> Row | None:
        return await self._ask(lambda: self._database.row(run_id))

    async def stored(self, run_id: str) -> StoredRun | None:
        return await self._ask(lambda: self._database.stored(run_id))

    async def stored_for_events(self, run_id: str) -> StoredRun | None:
        return await self._ask(lambda: self._database.stored_for_events(run_id))

    async def all_stored_for_events(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        return await self._ask(lambda: self._database.all_stored_for_events(run_ids))

    async def parked(self, partition: int, until_ms: float, limit: int) -> list[tuple[str, float]]:
        return await self._ask(lambda: self._database.parked(partition, until_ms, limit))

    async def ended_since(self, partition: int, since_ms: float) -> list[Run]:
        return await self._ask(lambda: self._database.ended_since(partition, since_ms))

    async def known(self, run_ids: Sequence[str]) -> dict[str, Run]:
        return await self._ask(lambda: self._database.known(run_ids))

    async def ping(self) -> None:
        await self.known(["-"])

    async def place(self, run_id: str, step: str) -> StepPlace | None:
        return await self._ask(lambda: self._database.place(run_id, step))

    async def outlook(self, partition: int) -> list[KeptEstimate]:
        return await self._ask(lambda: self._database.outlook(partition))

    async def _ask(self, statement: Callable[[], Any]) -> Any:
        return await asked(self._database, self._process, statement)


class SimulatedPipelineStore:
    """The pipeline store of one process, on the shared database: a `PipelineStore` of
    `hocket.coordinator.storage`."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process

    async def spec(self, tenant: str, pipeline: str, version: int) -> Any:
        return await self._ask(lambda: self._database.spec(tenant, pipeline, version))

    async def release(self, tenant: str, pipeline: str) -> Any:
        return await self._ask(lambda: self._database.release(tenant, pipeline))

    async def durations(self, tenant: str, pipeline: str) -> dict[str, Estimate]:
        return await self._ask(lambda: self._database.durations(tenant, pipeline))

    async def keep_durations(self, durations: Iterable[tuple[str, str, str, Estimate]]) -> None:
        kept = list(durations)
        await self._ask(lambda: self._database.keep_durations(kept))

    async def _ask(self, statement: Callable[[], Any]) -> Any:
        return await asked(self._database, self._process, statement)


async def asked(database: Database, process: Process, statement: Callable[[], Any]) -> Any:
    """Execute a statement in the database; return its answer or raise what the driver would."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def executed() -> None:
        result: Any = None
        error: BaseException | None = None
        if database.weather.down:
            error = ConnectionRefusedError("no database")
        else:
            try:
                result = statement()
            except Exception as raised:
                error = raised
            if database.dice.random() < database.weather.lose_answer_chance:
                database.world.note("postgres", f"loses an answer to {process.name}")
                error = asyncpg.ConnectionDoesNotExistError("the connection was lost")
        arrives_s = database.latency_s()
        database.world.after(arrives_s, loop.call_soon, _answered, answer, result, error)

    database.world.after(database.latency_s(), executed)
    return await answer


def _answered(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _refuse_unstorable(columns: Mapping[str, str], values: Sequence[Any]) -> None:
    """Raise Postgres' error for a row that it cannot store."""
    for kind, value in zip(columns.values(), values, strict=True):
        if isinstance(value, str):
            if kind != "jsonb" and "\x00" in value:
                raise asyncpg.CharacterNotInRepertoireError("invalid byte sequence: 0x00")
            if UNSTORABLE in value:
                raise asyncpg.UntranslatableCharacterError("unsupported Unicode escape sequence")
            value.encode()
        elif isinstance(value, float) and not math.isfinite(value) and kind == "timestamptz":
            raise asyncpg.DatetimeFieldOverflowError(f"timestamp cannot be {value}")


def _row(columns: Mapping[str, str], values: Sequence[Any]) -> Row:
    row = dict(zip(columns, values, strict=True))
    for name, kind in columns.items():
        if kind == "timestamptz" and row[name] is not None:
            row[name] = round(row[name] * 1_000) / 1_000
    return row


def _read(columns: Mapping[str, str], row: Row) -> Row:
    """Return a row as the driver returns it."""
    read = dict(row)
    for name, kind in columns.items():
        value = row[name]
        if value is None:
            continue
        if kind == "jsonb":
            read[name] = _jsonb_text(value)
        elif kind == "numeric":
            read[name] = Decimal(value)
    return read


@lru_cache(maxsize=1_024)
def _jsonb_text(text: str | bytes) -> str:
    return to_json(as_jsonb(from_json(text))).decode()


def as_jsonb(value: Any) -> Any:
    """Order the keys of objects as `jsonb` does: shorter ones first, then by their bytes."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: as_jsonb(value[key]) for key in keys}
    if isinstance(value, list):
        return [as_jsonb(item) for item in value]
    return value
