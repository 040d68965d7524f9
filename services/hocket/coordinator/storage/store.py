"""What the coordinator reads from and writes to Postgres. One statement commits a batch: state,
offsets and the fence together, or nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import asyncpg

from hocket.coordinator.core.run.ends.notification_watermark import NOTHING, NotificationWatermark
from hocket.coordinator.core.run.state.columns import (
    ATTEMPT_COLUMNS,
    KEPT_COLUMNS,
    RUN_COLUMNS,
    SPENDING_COLUMNS,
    STEP_COLUMNS,
    Columns,
    Row,
)
from hocket.coordinator.core.run.state.restore import StoredRun, readable
from hocket.coordinator.core.run.state.run import Run
from hocket.coordinator.core.time.duration_estimates import Estimate
from hocket.coordinator.core.time.pipeline_forecasts import KeptEstimate
from hocket.coordinator.flow.places import FlowQueue, write_flow
from hocket.coordinator.storage.commit_batch import MAX_STATEMENT_CHARS, parts_of
from hocket.coordinator.storage.commit_batch import Batch as Batch
from hocket.coordinator.storage.decided_rows import FIRST_COLUMNS
from hocket.coordinator.storage.step_tables import NO_SUFFIX, StepTables
from hocket.kit.postgres.lookups import rows_of_runs
from hocket.schemas.errors import HocketError
from hocket.schemas.repeats import StepPlace

COMMIT_TIMEOUT_S = 30.0
MAX_KEYS = 1_000
"""The most idempotency keys looked up in one query."""
_UNPLACED: tuple[str | None, float] = (None, 0.0)
MAX_RUNS_READ = 500
"""The most runs whose steps are read in one query."""


class PartitionLost(HocketError):
    """Another coordinator owns the partition now (epoch {epoch} of partition {partition} is over)."""

    code = "partition_lost"


@dataclass(frozen=True, slots=True)
class Offset:
    """How far the log of a partition is applied, the id of the message there, and up to when the
    ends of its runs were announced; that includes a mark only if the previous owner kept one."""

    epoch: int
    applied_seq: int
    applied_msg_id: str
    told: NotificationWatermark = NOTHING


class Store:
    """The statements that read and write partitions, runs and steps."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._tables = StepTables(pool)

    async def acquire(self, partition: int, owner: str) -> Offset:
        """Take a partition: from now on every commit with an older epoch is refused."""
        row = await self._pool.fetchrow(_ACQUIRE, partition, owner)
        mark = (row["acked_ms"], row["acked_at_ms"]) if row["marked"] else ()
        told = NotificationWatermark(row["told_ms"], *mark)
        return Offset(row["epoch"], row["applied_seq"], row["applied_msg_id"], told)

    async def commit(
        self, batch: Batch, max_chars: int = MAX_STATEMENT_CHARS
    ) -> Sequence[FlowQueue]:
        """Write a batch, or raise PartitionLost for the first partition that has another owner now,
        and write nothing. The same batch may be written again; it is refused once a later one is
        written. Batches longer than `max_chars` are written by several statements of one
        transaction. Return the queues in which runs now wait to start, or gave their places back."""
        try:
            return await self._commit(batch, max_chars)
        except (
            asyncpg.UndefinedTableError
        ):  # a day's tables were dropped before its oldest run ended
            self._tables.forget()
            return await self._commit(batch, max_chars)

    async def _commit(self, batch: Batch, max_chars: int) -> Sequence[FlowQueue]:
        fences = _fences(batch)
        parts = list(parts_of(batch, max_chars))
        suffixes = await self._suffixes(batch)
        try:
            if len(parts) == 1 and not _writes_more(batch):
                statement, arguments = _statement(fences, batch, suffixes)
                await self._pool.fetchval(statement, *arguments, timeout=COMMIT_TIMEOUT_S)
                return ()
            async with self._pool.acquire() as connection, connection.transaction():
                return await _write(connection, fences, parts, suffixes)
        except asyncpg.DivisionByZeroError:
            raise await self._lost(fences) from None

    async def _suffixes(self, batch: Batch) -> dict[str, str]:
        placements = batch.placements.items()
        return await self._tables.suffixes({run_id: at_ms for run_id, (_, at_ms) in placements})

    async def applied(self) -> dict[int, tuple[int, str]]:
        """Return how far the log of each partition is applied: the event's sequence and identity."""
        rows = await self._pool.fetch(_APPLIED)
        return {row["partition"]: (row["applied_seq"], row["applied_msg_id"]) for row in rows}

    async def rehearse(self, batch: Batch) -> None:
        """Write a batch and roll it back; raise what `commit` would raise."""
        fences = _fences(batch)
        suffixes = await self._suffixes(batch)
        try:
            async with self._pool.acquire() as connection:
                transaction = connection.transaction()
                await transaction.start()
                try:
                    await _write(connection, fences, parts_of(batch), suffixes)
                finally:
                    await transaction.rollback()
        except asyncpg.DivisionByZeroError:
            raise await self._lost(fences) from None

    async def _lost(self, fences: list[Row]) -> PartitionLost:
        lost = await self._pool.fetchrow(_LOST, *_columns(fences, FENCE_WIDTH)[:2])
        assert lost is not None, "epochs never go back, and nobody waits for a batch that is late"
        return PartitionLost(partition=lost["partition"], epoch=lost["epoch"])

    async def in_flight(self, partition: int) -> list[StoredRun]:
        """Return the runs of a partition that have not ended and are not parked, with their steps."""
        found = await self._pool.fetch(_IN_FLIGHT, partition)
        rows: dict[str, list[Any]] = {row["run_id"]: [] for row in found}
        for first in range(0, len(found), MAX_RUNS_READ):
            for row in await self._steps(_STEPS, found[first : first + MAX_RUNS_READ]):
                rows[row["run_id"]].append(row)
        return [StoredRun(row, rows[row["run_id"]]) for row in found]

    async def row(self, run_id: str) -> Columns | None:
        """Return a run's own row, if there is one."""
        row: Columns | None = await self._pool.fetchrow(_KNOWN, [run_id])
        return row

    async def stored(self, run_id: str) -> StoredRun | None:
        """Return a run with its steps, if there is one."""
        row = await self.row(run_id)
        return None if row is None else StoredRun(row, await self._steps(_STEPS, [row]))

    async def stored_for_events(self, run_id: str) -> StoredRun | None:
        """Return a run with its steps as events need it: if it has ended, without the steps' inputs
        and outputs, which nothing needs any more and which may be very large."""
        return (await self.all_stored_for_events([run_id])).get(run_id)

    async def all_stored_for_events(self, run_ids: Sequence[str]) -> dict[str, StoredRun]:
        """Return those of these runs that exist, as `stored_for_events` does."""
        found = await self._pool.fetch(_KNOWN, list(run_ids))
        steps: dict[str, list[Any]] = {row["run_id"]: [] for row in found}
        for query, has_ended in ((_STEPS, False), (_STEPS_WITHOUT_VALUES, True)):
            runs = [row for row in found if (row["finished_at"] is not None) is has_ended]
            for row in await self._steps(query, runs) if runs else ():
                steps[row["run_id"]].append(row)
        return {row["run_id"]: StoredRun(row, steps[row["run_id"]]) for row in found}

    async def _steps(self, query: str, runs: Sequence[Any]) -> list[Any]:
        """Return the steps of runs, from the tables of their days."""
        try:
            return await self._steps_by_day(query, runs)
        except asyncpg.UndefinedTableError:
            self._tables.forget()
            return await self._steps_by_day(query, runs)

    async def _steps_by_day(self, query: str, runs: Sequence[Any]) -> list[Any]:
        accepted_ms = {row["run_id"]: row["accepted_at"] for row in runs}
        by_suffix: dict[str, list[str]] = {}
        for run_id, suffix in (await self._tables.suffixes(accepted_ms)).items():
            by_suffix.setdefault(suffix, []).append(run_id)
        found: list[Any] = []
        for suffix, run_ids in by_suffix.items():
            found += await self._pool.fetch(query.format(suffix=suffix), run_ids)
        return found

    async def parked(self, partition: int, until_ms: float, limit: int) -> list[tuple[str, float]]:
        """Return the parked runs of a partition that want to be woken by a time (epoch ms), and
        when, earliest first."""
        rows = await self._pool.fetch(_PARKED, partition, until_ms, limit)
        return [(row["run_id"], row["parked_until"]) for row in rows]

    async def ended_since(self, partition: int, since_ms: float) -> list[Run]:
        """Return the runs of a partition that ended at a time (epoch ms) or later, without steps."""
        rows = await self._pool.fetch(_ENDED, partition, since_ms)
        return [readable(row)[0] for row in rows]

    async def known(self, run_ids: Sequence[str]) -> dict[str, Run]:
        """Return those of these runs that are in Postgres, without their steps."""
        rows = await self._pool.fetch(_KNOWN, list(run_ids))
        return {row["run_id"]: readable(row)[0] for row in rows}

    async def ping(self) -> None:
        """Run a query that succeeds whenever Postgres answers at all."""
        await self.known(["-"])

    async def place(self, run_id: str, step: str) -> StepPlace | None:
        """Return the place of a step in a run, if there is a step of that name."""
        row = await self._pool.fetchrow(_PLACE, run_id, step)
        return None if row is None else StepPlace(**dict(row))

    async def outlook(self, partition: int) -> list[KeptEstimate]:
        """Return the forecasts of a partition's pipelines, as of its offset."""
        rows = await self._pool.fetch(_OUTLOOK, partition)
        return [
            KeptEstimate(
                r["tenant"],
                r["pipeline"],
                r["path"],
                Estimate(r["mean_ms"], r["variance"], r["weight"]),
            )
            for r in rows
        ]


def _fences(batch: Batch) -> list[Row]:
    return [
        (p, *o, batch.numbers.get(p, 0), *_told_row(batch.told.get(p)))
        for p, o in sorted(batch.offsets.items())
    ]


async def _write(
    connection: Any, fences: list[Row], parts: Iterable[Batch], suffixes: Mapping[str, str]
) -> Sequence[FlowQueue]:
    closed: list[str] = []
    queues: set[FlowQueue] = set()
    for part in parts:
        statement, arguments = _statement(fences, part, suffixes)
        await connection.fetchval(statement, *arguments, timeout=COMMIT_TIMEOUT_S)
        closed += part.closed
        if part.flow or part.left:
            queues |= await write_flow(connection, part, timeout_s=COMMIT_TIMEOUT_S)
        if part.spending:
            await _write_spending(connection, part.spending, suffixes)
    if closed:
        await connection.execute(_CLOSE, closed, timeout=COMMIT_TIMEOUT_S)
    return tuple(queues)


def _writes_more(batch: Batch) -> bool:
    """Tell whether a batch needs statements beside the one that writes rows."""
    return bool(batch.closed or batch.flow or batch.left or batch.spending)


async def _write_spending(
    connection: Any, rows: Sequence[Row], suffixes: Mapping[str, str]
) -> None:
    """Write what more was spent of runs that have ended; their rows change in nothing else."""
    run_ids, _, spent_usd, _, of_runs = _columns(rows, len(SPENDING_COLUMNS))
    await connection.execute(_SPENT, run_ids, spent_usd, of_runs, timeout=COMMIT_TIMEOUT_S)
    for suffix, of_table in _by_suffix(rows, suffixes).items():
        run_ids, keys, _, facts, _ = _columns(of_table, len(SPENDING_COLUMNS))
        statement = _STEPS_SPENT.format(suffix=suffix)
        await connection.execute(statement, run_ids, keys, facts, timeout=COMMIT_TIMEOUT_S)


def _statement(
    fences: list[Row], batch: Batch, suffixes: Mapping[str, str]
) -> tuple[str, list[Sequence[Any]]]:
    """Return the statement and arguments that write a batch, with a separate insert for each table
    of steps and attempts."""
    arguments: list[Sequence[Any]] = [*_columns(fences, FENCE_WIDTH), batch.runs]
    tables = ["run"]
    for kind, rows in (("step", batch.steps), ("attempt", batch.attempts)):
        for suffix, of_table in _by_suffix(rows, suffixes).items():
            tables.append(kind + suffix)
            arguments.append(_with_tenants(batch, of_table))
    if batch.outlooks:  # rare
        tables.append("outlook")
        arguments.append(batch.outlooks)
    return _commit_statement(tuple(tables)), arguments


def _by_suffix(rows: Iterable[Row], suffixes: Mapping[str, str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        suffix = suffixes.get(row[0], NO_SUFFIX)
        of_table = found.get(suffix)
        if of_table is None:
            found[suffix] = [row]
        else:
            of_table.append(row)
    return found


def _with_tenants(batch: Batch, rows: Iterable[Row]) -> list[Row]:
    placements = batch.placements
    return [(*row, placements.get(row[0], _UNPLACED)[0]) for row in rows]


@lru_cache(maxsize=64)
def _commit_statement(tables: tuple[str, ...]) -> str:
    """Return the statement for rows of these tables; their rows must come in the same order."""
    inserts = [_insert(table, place) for place, table in enumerate(tables, FENCE_WIDTH + 1)]
    return "".join((_FENCE, *inserts, _FENCED))


def _insert(table: str, place: int) -> str:
    """Return the part that writes the rows of argument `place`, an array of the table's row type."""
    kind = table.partition("_")[0]
    columns = WRITTEN_COLUMNS[kind]
    values = ", ".join(
        f"to_timestamp({name} / 1000)" if type_ == "timestamptz" else f"{name}::{type_}"
        for name, type_ in columns.items()
    )
    return f"""
, {table} AS (
    INSERT INTO hocket.{table} AS kept ({", ".join(columns)})
    SELECT {values} FROM unnest(${place}::hocket.written_{kind}[]) AS written
    {_ON_CONFLICT[kind]}
)"""


def _told_row(told: NotificationWatermark | None) -> tuple[float | None, ...]:
    return (None,) * 3 if told is None else (told.told_ms, told.acked_ms, told.acked_at_ms)


def _columns(rows: Sequence[Row], width: int) -> list[tuple[Any, ...]]:
    return list(zip(*rows, strict=True)) if rows else [() for _ in range(width)]


def _read(columns: Mapping[str, str]) -> str:
    """Return a SELECT list for columns, with times as epoch milliseconds; critical paths are only
    read if a parent run has yet to be told of them."""
    return ", ".join(
        f"(extract(epoch FROM {name}) * 1000)::double precision AS {name}"
        if kind == "timestamptz"
        else f"CASE WHEN parent IS NOT NULL THEN {name} END AS {name}"
        if name == "critical_path"
        else name
        for name, kind in columns.items()
    )


def _set(columns: Mapping[str, str], keep: set[str]) -> str:
    return ", ".join(f"{name} = excluded.{name}" for name in columns if name not in keep)


_ACQUIRE = """
INSERT INTO hocket.partition (partition, epoch, owner) VALUES ($1, 1, $2)
ON CONFLICT (partition) DO UPDATE
SET epoch = hocket.partition.epoch + 1, batch = 0, owner = excluded.owner, updated_at = now()
RETURNING epoch, applied_seq, applied_msg_id,
    (extract(epoch FROM told_at) * 1000)::double precision AS told_ms,
    marked_in = epoch - 1 AS marked,
    (extract(epoch FROM acked_to) * 1000)::double precision AS acked_ms,
    (extract(epoch FROM acked_at) * 1000)::double precision AS acked_at_ms
"""
_APPLIED = "SELECT partition, applied_seq, applied_msg_id FROM hocket.partition"
_LOST = """
SELECT f.partition, f.epoch FROM unnest($1::integer[], $2::bigint[]) AS f(partition, epoch)
WHERE NOT EXISTS (
    SELECT FROM hocket.partition p WHERE p.partition = f.partition AND p.epoch = f.epoch
)
ORDER BY f.partition LIMIT 1
"""
OUTLOOK_COLUMNS: Mapping[str, str] = {
    "partition": "integer",
    "tenant": "text",
    "pipeline": "text",
    "path": "text",
    "weight": "double precision",
    "mean_ms": "double precision",
    "variance": "double precision",
}
FENCE_WIDTH = 8
WRITTEN_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "run": RUN_COLUMNS,
    "step": {**STEP_COLUMNS, "tenant": "text"},
    "attempt": {**ATTEMPT_COLUMNS, "tenant": "text"},
    "outlook": OUTLOOK_COLUMNS,
}
"""The columns of the row types in which rows are sent (migration 0066). asyncpg encodes a row as a
whole faster than the arrays of its columns, and Postgres reads it faster."""
_REPLACED = "CASE WHEN kept.status = 'rejected' THEN excluded.{0} ELSE kept.{0} END"
_ON_CONFLICT = {
    "run": f"""
    ON CONFLICT (run_id) DO UPDATE
    SET {", ".join(f"{name} = {_REPLACED.format(name)}" for name in FIRST_COLUMNS)},
        {_set(RUN_COLUMNS, {"run_id", "partition", "tenant", *FIRST_COLUMNS})}
    WHERE kept.finished_at IS NULL OR kept.status = 'rejected'
    """,
    "step": f"""
    ON CONFLICT (run_id, key) DO UPDATE
    SET {", ".join(f"{name} = coalesce(excluded.{name}, kept.{name})" for name in KEPT_COLUMNS)},
        {_set(STEP_COLUMNS, {"run_id", "key", "path", "type", *KEPT_COLUMNS})}
    """,
    "attempt": "ON CONFLICT (run_id, key, attempt, outcome) DO NOTHING",
    "outlook": f"""
    ON CONFLICT (partition, tenant, pipeline, path) DO UPDATE
    SET {_set(OUTLOOK_COLUMNS, {"partition", "tenant", "pipeline", "path"})}
    """,
}
# The division fails, and the whole statement with it, unless every partition is still ours. It also
# fails if a later batch has been written: a connection was lost, its batch was written by another
# one, and what the lost connection had sent is executed only now (by a server that was stalled).
_FENCE = """
WITH fence AS (
    UPDATE hocket.partition p
    SET applied_seq = f.seq, applied_msg_id = f.msg_id, batch = f.batch, updated_at = now(),
        told_at = greatest(p.told_at, to_timestamp(f.told_ms / 1000)),
        acked_to = coalesce(to_timestamp(f.acked_ms / 1000), p.acked_to),
        acked_at = coalesce(to_timestamp(f.acked_at_ms / 1000), p.acked_at),
        marked_in = CASE WHEN f.told_ms IS NULL THEN p.marked_in ELSE f.epoch END
    FROM unnest(
        $1::integer[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[],
        $6::double precision[], $7::double precision[], $8::double precision[]
    ) AS f(partition, epoch, seq, msg_id, batch, told_ms, acked_ms, acked_at_ms)
    WHERE p.partition = f.partition AND p.epoch = f.epoch AND p.batch <= f.batch
    RETURNING 1
)"""
_FENCED = """
SELECT 1 / ((SELECT count(*) FROM fence) = cardinality($1::integer[]))::integer
"""
# Closes the steps still open in Postgres of runs that were ended without their steps' rows.
_CLOSE = """
UPDATE hocket.step AS step
SET state = 'cancelled', finished_at = run.finished_at, wake_at = NULL
FROM hocket.run AS run
WHERE step.run_id = ANY($1::text[]) AND step.finished_at IS NULL
  AND run.run_id = step.run_id AND run.finished_at IS NOT NULL
"""
_SPENT = """
UPDATE hocket.run AS run SET spent_usd = greatest(run.spent_usd, news.spent_usd),
    facts = CASE WHEN news.facts IS NULL THEN run.facts ELSE coalesce(run.facts, '{}') || news.facts END
FROM (
    SELECT run_id, max(spent_usd) AS spent_usd, max(facts)::jsonb AS facts
    FROM unnest($1::text[], $2::numeric[], $3::text[]) AS u(run_id, spent_usd, facts)
    GROUP BY run_id
) AS news
WHERE run.run_id = news.run_id AND run.finished_at IS NOT NULL
"""
_STEPS_SPENT = """
UPDATE ONLY hocket.step{suffix} AS step SET facts = coalesce(step.facts, '{{}}') || news.facts
FROM (
    SELECT run_id, key, facts::jsonb AS facts
    FROM unnest($1::text[], $2::text[], $3::text[]) AS u(run_id, key, facts)
) AS news
WHERE step.run_id = news.run_id AND step.key = news.key
"""
_IN_FLIGHT = f"""
SELECT {_read(RUN_COLUMNS)} FROM hocket.run
WHERE partition = $1 AND finished_at IS NULL AND parked_until IS NULL
ORDER BY accepted_at, run_id
"""
_PARKED = """
SELECT run_id, (extract(epoch FROM parked_until) * 1000)::double precision AS parked_until
FROM hocket.run
WHERE partition = $1 AND parked_until <= to_timestamp($2::double precision / 1000)
ORDER BY parked_until, run_id LIMIT $3
"""
_OF_STEPS = rows_of_runs("ONLY hocket.step{suffix}")
_STEPS = f"SELECT {_read(STEP_COLUMNS)} {_OF_STEPS}"
_WITHOUT_VALUES = {
    name: kind for name, kind in STEP_COLUMNS.items() if name not in ("input", "output")
}
_STEPS_WITHOUT_VALUES = f"""
SELECT {_read(_WITHOUT_VALUES)}, NULL AS input, NULL AS output {_OF_STEPS}
"""
_ENDED = f"""
SELECT {_read(RUN_COLUMNS)} FROM hocket.run
WHERE partition = $1 AND finished_at >= to_timestamp($2::double precision / 1000)
ORDER BY finished_at, run_id
"""
_KNOWN = f"SELECT {_read(RUN_COLUMNS)} {rows_of_runs('hocket.run')}"
_PLACE = """
SELECT path, role, coalesce(facts ->> 'home', '') AS home
FROM hocket.step WHERE run_id = $1 AND key = $2
"""
_OUTLOOK = """
SELECT tenant, pipeline, path, weight, mean_ms, variance FROM hocket.outlook WHERE partition = $1
"""
