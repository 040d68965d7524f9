"""Answers gateways' questions about spending: by a run, or by a pipeline, label or tenant since a
point in time.

One of the ledgers answers. With a key, only questions sealed by a gateway are answered, and answers
are sealed. If too many questions are in progress (`questions.py`), or Postgres is unreachable, the
answer is that the ledger is busy: gateways ask again, or continue with what they know.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

import asyncpg
import structlog
from nats.aio.msg import Msg
from pydantic import ValidationError

from hocket.kit.logs.log_limits import Reporting
from hocket.kit.nats.bus import Bus
from hocket.kit.postgres.errors import STATEMENT_ERRORS
from hocket.kit.postgres.lookups import HAS_CHARGE, charged_since
from hocket.kit.process.task_stop import stop_tasks
from hocket.ledger.daily_spending import is_told_by_days, spent_since_day
from hocket.ledger.questions import OpenQuestions
from hocket.ledger.records.record import moment
from hocket.schemas import subjects
from hocket.schemas.capabilities import SEAL, Capabilities, answer_to
from hocket.schemas.messages import RootBudget, SpentAsked, SpentTold

QUEUE = "ledger"
TIMEOUT_S = 5.0
BUSY = SpentTold(spent_usd=Decimal(0), busy=True).model_dump_json(exclude_defaults=True).encode()
"""The answer to a question that cannot be answered now."""

OF_RUN = """
WITH own AS (
    SELECT budget_usd, parent -> 'root_budget' AS root_budget, labels, pipeline,
           accepted_at, accepted_at - interval '1 day' AS since
    FROM hocket.run WHERE run_id = $2 AND tenant = $1
)
SELECT coalesce(sum(u.cost_usd), 0) + coalesce((
           SELECT sum(stray.cost_usd)
           FROM own
           JOIN hocket.stray_call s ON s.run_id = $2 AND s.started_at < own.since
           JOIN hocket.usage stray ON stray.call_id = s.call_id AND stray.started_at = s.started_at
           WHERE stray.tenant = $1
       ), 0) AS spent_usd,
       (SELECT budget_usd FROM own) AS budget_usd, (SELECT root_budget FROM own) AS root_budget,
       (SELECT labels FROM own) AS labels, (SELECT pipeline FROM own) AS pipeline,
       (SELECT extract(epoch FROM accepted_at)::double precision * 1000 FROM own) AS accepted_ms,
       EXISTS (SELECT FROM own) AS run_known
FROM hocket.usage u
WHERE u.tenant = $1 AND u.run_id = $2 AND u.started_at >= coalesce(
    (SELECT since FROM own),
    CASE WHEN $2 ~ '^r[0-9a-f]{24}$' THEN now() - interval '1 day' ELSE '-infinity' END)
"""
"""The cost of a run's calls, its budget, the budget at the top of its tree, its labels and pipeline,
and when it was accepted.

Calls from before its acceptance (but for a gateway's clock) are those of a deleted run whose key was
used again. Of a run of ours that is not stored yet, the calls of the last day count; of one from
elsewhere, all."""

SINCE = """
SELECT coalesce(sum(u.cost_usd), 0) AS spent_usd
FROM hocket.usage u
WHERE u.tenant = $1 AND ($2::text IS NULL OR u.pipeline = $2) AND u.started_at >= $3
  AND ($4::jsonb IS NULL OR u.labels @> $4)
"""
"""The cost of the calls of a tenant, of one of its pipelines, or with some labels,
since a point in time."""

TOOLS_OF_RUN = f"""
WITH RECURSIVE below(run_id) AS (
    SELECT run_id FROM hocket.run WHERE run_id = $2 AND tenant = $1
    UNION
    SELECT child.run_id FROM below CROSS JOIN LATERAL (
        SELECT r.run_id FROM hocket.run r
        WHERE r.parent ->> 'run_id' = below.run_id AND r.tenant = $1
          AND r.parent IS NOT NULL OFFSET 0) child
)
SELECT coalesce(sum(charge.usd), 0) AS tools_usd FROM below CROSS JOIN LATERAL (
    SELECT (s.facts ->> 'charged_usd')::numeric AS usd FROM hocket.step s
    WHERE s.run_id = below.run_id AND {HAS_CHARGE} OFFSET 0) charge
"""
"""What tools charged to a run and to the runs below it, whose spending is its own too. Rows are read run
by run, as in `kit/postgres/lookups.py`."""

TOOLS_SINCE = f"""
SELECT coalesce((
    SELECT sum(k.cost_usd)
    FROM hocket.kept_charge k
    WHERE k.tenant = $1 AND ($2::text IS NULL OR k.pipeline = $2) AND k.finished_at >= $3
      AND ($4::jsonb IS NULL OR k.labels @> $4)
), 0) + coalesce(sum({charged_since("$3")}), 0) AS tools_usd
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE {HAS_CHARGE}
  AND r.tenant = $1 AND ($2::text IS NULL OR r.pipeline = $2)
  AND (s.finished_at >= $3 OR s.finished_at IS NULL AND EXISTS (
      SELECT FROM hocket.attempt a
      WHERE a.run_id = s.run_id AND a.key = s.key AND a.finished_at >= $3
  ))
  AND ($4::jsonb IS NULL OR r.labels @> $4)
"""
"""What tools charged to runs of a tenant, of one of its pipelines, or with some labels, since a
point in time, whether their steps are kept or not. Of a step that has not ended, the attempts count
that have ended since then: it may be suspended for weeks, and must not use up each hour's budget."""

log = structlog.get_logger()
_reporting = Reporting()


class SpentDoor:
    """Answers questions inside `open`."""

    def __init__(self, bus: Bus, pool: asyncpg.Pool, seals: Capabilities | None) -> None:
        self._bus = bus
        self._pool = pool
        self._seals = seals
        self._answering: set[asyncio.Task[None]] = set()
        self._open = OpenQuestions()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Answer until the block ends."""
        asked = await self._bus.subscribe(subjects.LEDGER_SPENT, self._on_asked, queue=QUEUE)
        try:
            yield
        finally:
            await asked.unsubscribe()
            await stop_tasks(self._answering)

    async def _on_asked(self, message: Msg) -> None:
        if not message.reply:
            return
        if self._seals is not None:
            seal = (message.headers or {}).get(SEAL, "")
            if not self._seals.is_sealed(seal, subjects.LEDGER_SPENT, message.data):
                if count := _reporting.due("spent_asked_unsealed"):
                    log.warning("spent_asked_unsealed", count=count)
                return
        try:
            asked = SpentAsked.model_validate_json(message.data)
        except ValidationError as error:
            if count := _reporting.due("spent_asked_malformed"):
                log.warning("spent_asked_malformed", faults=error.error_count(), count=count)
            return
        if not self._open.begin(asked.tenant):
            self._respond(message, BUSY)
            return
        task = asyncio.create_task(self._answer(message, asked), name="spent asked")
        self._answering.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, asked.tenant))

    def _ended(self, task: asyncio.Task[None], tenant: str) -> None:
        self._answering.discard(task)
        self._open.end(tenant)

    async def _answer(self, message: Msg, asked: SpentAsked) -> None:
        try:
            told = await spent(self._pool, asked)
        except STATEMENT_ERRORS as error:
            if count := _reporting.due("spent_not_told"):
                log.warning("spent_not_told", reason=repr(error), count=count)
            self._respond(message, BUSY)
            return
        self._respond(message, told.model_dump_json().encode())

    def _respond(self, message: Msg, body: bytes) -> None:
        headers = None
        if self._seals is not None:
            seal = self._seals.seal(answer_to(subjects.LEDGER_SPENT, message.data), body)
            headers = {SEAL: seal}
        self._bus.respond(message.reply, body, headers)


async def spent(pool: asyncpg.Pool, asked: SpentAsked) -> SpentTold:
    """Return the ledger's answer to a question; raise one of STATEMENT_ERRORS."""
    if asked.run_id is not None:
        row = await pool.fetchrow(OF_RUN, asked.tenant, asked.run_id, timeout=TIMEOUT_S)
        tools_usd = None
        if asked.tools:
            of_run = (asked.tenant, asked.run_id)
            tools_usd = await pool.fetchval(TOOLS_OF_RUN, *of_run, timeout=TIMEOUT_S)
        return SpentTold(
            spent_usd=row["spent_usd"],
            run_known=row["run_known"],
            pipeline=row["pipeline"],
            budget_usd=row["budget_usd"],
            labels=None if row["labels"] is None else json.loads(row["labels"]),
            root_budget=_root_budget(row["root_budget"]),
            accepted_at_ms=row["accepted_ms"],
            tools_usd=tools_usd,
        )
    since = moment(asked.since_ms)
    labels = None if asked.labels is None else json.dumps(asked.labels)
    of_calls = (asked.tenant, asked.pipeline, since)
    of = (*of_calls, labels)
    if asked.tools:
        tools_usd = await pool.fetchval(TOOLS_SINCE, *of, timeout=TIMEOUT_S)
        return SpentTold(spent_usd=Decimal(0), tools_usd=tools_usd)
    if not is_told_by_days(since, asked.labels):
        return SpentTold(spent_usd=await pool.fetchval(SINCE, *of, timeout=TIMEOUT_S))
    async with asyncio.timeout(TIMEOUT_S), pool.acquire() as connection:
        return SpentTold(spent_usd=await spent_since_day(connection, *of_calls))


def _root_budget(column: str | None) -> RootBudget | None:
    """Return the budget in a column; None if it is JSON null, which means that the tree has none."""
    value = None if column is None else json.loads(column)
    return None if value is None else RootBudget.model_validate(value)
