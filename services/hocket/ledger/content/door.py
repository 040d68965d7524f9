"""Receives prompts and answers from gateways, and writes them.

One of the ledgers takes each batch, and answers once it is committed. With a key, only batches
sealed by a gateway are taken. A batch that arrives twice changes nothing.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.process.task_stop import stop_tasks
from hocket.ledger.json_texts import json_text
from hocket.ledger.records.record import moment
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities
from hocket.schemas.tracing.content import CallContent, ContentBatch

QUEUE = "ledger"
TIMEOUT_S = 5.0
MAX_WRITING = 8
"""The most batches written at once; further ones are not answered, and are sent again."""
INSERT = """
INSERT INTO hocket.content (call_id, tenant, pipeline, run_id, step, attempt, model, kept, prompt,
                            answer, is_cut, started_at)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::integer[],
                     $7::text[], $8::text[], $9::jsonb[], $10::jsonb[], $11::boolean[],
                     $12::timestamptz[]) AS given(call_id, tenant)
WHERE NOT EXISTS (
    SELECT FROM hocket.content c
    WHERE c.call_id = given.call_id AND c.tenant = given.tenant AND c.kept_at > now() - interval '1 day'
)
"""
"""Ids of calls are used again with their run's id, and by clients that repeat a key: what has come twice
has come within a day."""

log = structlog.get_logger()
_reporting = Reporting()


class ContentDoor:
    """Receives content inside `open`."""

    def __init__(self, bus: Bus, pool: asyncpg.Pool, seals: Capabilities | None) -> None:
        self._bus = bus
        self._pool = pool
        self._seals = seals
        self._writing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Receive content until the block ends."""
        given = await self._bus.subscribe(subjects.LEDGER_CONTENT, self._on_given, queue=QUEUE)
        try:
            yield
        finally:
            await given.unsubscribe()
            await stop_tasks(self._writing)

    async def _on_given(self, message: Msg) -> None:
        if not message.reply or len(self._writing) >= MAX_WRITING:
            return
        if self._seals is not None:
            seal = (message.headers or {}).get(SEAL, "")
            if not self._seals.is_sealed(seal, subjects.LEDGER_CONTENT, message.data):
                if count := _reporting.due("content_unsealed"):
                    log.warning("content_unsealed", count=count)
                return
        try:
            batch = ContentBatch.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("content_malformed"):
                log.warning("content_malformed", faults=error.error_count(), count=count)
            return
        task = asyncio.create_task(self._write(message, batch), name="content")
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, message: Msg, batch: ContentBatch) -> None:
        try:
            await write(self._pool, batch.calls)
        except STATEMENT_ERRORS as error:
            if count := _reporting.due("content_not_written"):
                log.warning("content_not_written", reason=repr(error), count=count)
            return
        self._bus.respond(message.reply, b"{}")


async def write(pool: asyncpg.Pool, calls: tuple[CallContent, ...]) -> None:
    """Write content, ignoring repeats; raise one of STATEMENT_ERRORS."""
    rows = {(call.attribution.tenant, call.call_id): _row(call) for call in calls}
    await pool.execute(INSERT, *map(list, zip(*rows.values(), strict=True)), timeout=TIMEOUT_S)


def _row(call: CallContent) -> tuple[object, ...]:
    who = call.attribution
    return (
        call.call_id,
        who.tenant,
        who.pipeline,
        who.run_id,
        who.step,
        who.attempt,
        call.model,
        call.kept,
        json_text(call.prompt),
        json_text(call.answer),
        call.is_cut,
        moment(call.started_at_ms),
    )
