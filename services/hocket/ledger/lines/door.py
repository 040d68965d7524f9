"""Receives handlers' log lines from workers, and writes them.

One of the ledgers takes each batch, and answers once it is committed. Lines are accepted only with
the capability of their attempt, so nobody can write into a run without having been given a step of
it. A batch that arrives twice changes nothing, and a run keeps at most MAX_RUN_LINES.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from math import isfinite

import asyncpg
import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.lookups import KEPT_OF_THIS_RUN
from hocket.kit.process.task_stop import stop_tasks
from hocket.ledger.json_texts import json_text
from hocket.ledger.records.record import moment
from hocket.schemas import subjects
from hocket.schemas.capabilities import Capabilities
from hocket.schemas.tracing.log_lines import (
    MAX_BATCH_BYTES,
    MAX_RUN_LINES,
    AttemptLines,
    LineBatch,
    LogLine,
)

QUEUE = "ledger"
TIMEOUT_S = 5.0
MAX_WRITING = 4
"""The most batches written at once; further ones are not answered, and are sent again."""
POOL_SHARE = 0.5
"""The share of MAX_WRITING that the workers of one pool may use."""
KEPT = f"""
SELECT wanted.run_id, (
    SELECT count(*) FROM (
        SELECT FROM hocket.log_line c
        WHERE c.tenant = wanted.tenant AND c.run_id = wanted.run_id AND {KEPT_OF_THIS_RUN}
        LIMIT $3
    ) found
) AS lines
FROM unnest($1::text[], $2::text[]) AS wanted(tenant, run_id)
"""
"""Counts the lines of each of these runs, only as far as needed."""
INSERT = """
INSERT INTO hocket.log_line (tenant, run_id, step, attempt, delivery, number, at, level, text, fields,
                             worker)
SELECT given.* FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::integer[],
    $6::integer[], $7::timestamptz[], $8::text[], $9::text[], $10::jsonb[], $11::text[])
    AS given(tenant, run_id, step, attempt, delivery, number, at, level, text, fields, worker)
WHERE NOT EXISTS (
    SELECT FROM hocket.log_line l
    WHERE l.tenant = given.tenant AND l.run_id = given.run_id AND l.at = given.at
      AND l.step = given.step AND l.attempt = given.attempt AND l.delivery = given.delivery
      AND l.number = given.number
)
"""

log = structlog.get_logger()
_reporting = Reporting()


class LineDoor:
    """Receives lines that `capabilities` verify, inside `open`."""

    def __init__(self, bus: Bus, pool: asyncpg.Pool, capabilities: Capabilities) -> None:
        self._bus = bus
        self._pool = pool
        self._capabilities = capabilities
        self._writing: set[asyncio.Task[None]] = set()
        self._of_pool = Counter[str]()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Receive lines until the block ends."""
        given = await self._bus.subscribe(f"{subjects.WORKER_LINES}.*", self._on_given, queue=QUEUE)
        try:
            yield
        finally:
            await given.unsubscribe()
            await stop_tasks(self._writing)

    async def _on_given(self, message: Msg) -> None:
        pool = message.subject.rpartition(".")[2]
        if (
            not message.reply
            or len(message.data) > 2 * MAX_BATCH_BYTES
            or len(self._writing) >= MAX_WRITING
            or self._of_pool[pool] >= MAX_WRITING * POOL_SHARE
        ):
            return
        try:
            batch = LineBatch.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("log_lines_malformed"):
                log.warning("log_lines_malformed", faults=error.error_count(), count=count)
            return
        self._of_pool[pool] += 1
        task = asyncio.create_task(self._write(message, batch), name="log lines")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        task.add_done_callback(lambda _: self._written(pool))

    def _written(self, pool: str) -> None:
        self._of_pool[pool] -= 1
        if not self._of_pool[pool]:
            del self._of_pool[pool]

    async def _write(self, message: Msg, batch: LineBatch) -> None:
        proven = [one for one in batch.attempts if self._is_proven(one)]
        if len(proven) < len(batch.attempts) and (count := _reporting.due("log_lines_unproven")):
            log.warning("log_lines_unproven", count=count)
        try:
            await write(self._pool, proven)
        except STATEMENT_ERRORS as error:
            if count := _reporting.due("log_lines_not_written"):
                log.warning("log_lines_not_written", reason=repr(error), count=count)
            return
        self._bus.respond(message.reply, b"{}")

    def _is_proven(self, one: AttemptLines) -> bool:
        return self._capabilities.is_of_attempt(
            one.capability, one.tenant, one.run_id, one.step, one.attempt, one.dispatched_at_ms
        )


async def write(pool: asyncpg.Pool, attempts: list[AttemptLines]) -> None:
    """Write lines, ignoring repeats, as far as their runs have room; raise one of STATEMENT_ERRORS."""
    runs = sorted({(one.tenant, one.run_id) for one in attempts})
    if not runs:
        return
    tenants, ids = map(list, zip(*runs, strict=True))
    kept = await pool.fetch(KEPT, tenants, ids, MAX_RUN_LINES, timeout=TIMEOUT_S)
    room = {row["run_id"]: MAX_RUN_LINES - row["lines"] for row in kept}
    rows = list(_rows(attempts, room))
    if rows:
        await pool.execute(INSERT, *map(list, zip(*rows, strict=True)), timeout=TIMEOUT_S)


def _rows(attempts: list[AttemptLines], room: dict[str, int]) -> Iterator[tuple[object, ...]]:
    known: set[tuple[object, ...]] = set()
    for one in attempts:
        for line in one.lines:
            place = (one.run_id, one.step, one.attempt, one.delivery, line.number)
            if place in known or room.get(one.run_id, 0) <= 0:
                continue
            known.add(place)
            room[one.run_id] -= 1
            yield (
                one.tenant,
                *place,
                moment(line.at_ms),
                line.level,
                line.text,
                _fields(line),
                one.worker,
            )


def _fields(line: LogLine) -> str | None:
    """Return the fields of a line in a form that Postgres accepts; None if they are not an object.
    Workers of earlier releases write `NaN` and the infinities as numbers; they become text, as does a
    number that is too large."""
    try:
        found = json.loads(line.fields or "null", parse_constant=str, parse_float=_number)
        told = json_text(found)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(found, dict) else None


def _number(text: str) -> float | str:
    value = float(text)
    return value if isfinite(value) else text
