"""Rows of runs and steps, written directly into Postgres, for tests of what is read from there."""

import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from hocket.ledger.upkeep import day_partitions

RUN_ROW = """
INSERT INTO hocket.run (run_id, partition, tenant, pipeline, version, status, priority, input, output,
    error, accepted_at, deadline_at, finished_at, spent_usd, budget_usd, critical_path, labels)
VALUES ($1, 0, $2, $3, $4, $5, 'standard', $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""
STEP_ROW = """
INSERT INTO hocket.step (run_id, key, path, type, role, state, attempt, input, output, error, ready_at,
    dispatched_at, started_at, finished_at, deadline_at, slack_ms, worker)
VALUES ($1, $2, $3, $4, $14, $5, $6, $7, $7, $8, $9, $10, $10, $11, $12, 1200, $13)
"""
CALL_ROW = """
INSERT INTO hocket.usage (call_id, kind, tenant, pipeline, version, run_id, node, step, attempt, model,
    backend, status, input_tokens, output_tokens, cached_tokens, cost_usd, started_at, latency_ms,
    decision, labels)
VALUES ($1, $2, $3, $4, 1, $5, $6, $6, 1, $7, $8, 'ok', 1200, 300, 0, $9, $10, $13, $11, $12)
"""
LINE_ROW = """
INSERT INTO hocket.log_line (tenant, run_id, step, attempt, delivery, number, at, level, text, fields,
    worker)
VALUES ($1, $2, $3, 1, 1, $4, $5, $6, $7, $8, 'worker-1')
"""


def error_of(text: str, code: str = "check_failed") -> str:
    return json.dumps({"code": code, "message": text, "error_class": "permanent"})


async def insert_run(
    pool: "asyncpg.Pool[asyncpg.Record]",
    run_id: str,
    accepted: datetime,
    text: str = "hi",
    **fields: Any,
) -> None:
    """Insert a run that ended after `took_ms`, or is in progress if its status is `running`. `text` is
    part of its input, its output and, if it failed, its error."""
    status = fields.get("status", "succeeded")
    took = timedelta(milliseconds=fields.get("took_ms", 1_000))
    await pool.execute(
        RUN_ROW,
        run_id,
        fields.get("tenant", "default"),
        fields.get("pipeline", "greet"),
        fields.get("version", 1),
        status,
        json.dumps(fields.get("input", {"text": text})),
        json.dumps(fields.get("output", text)),
        error_of(text, fields.get("code", "check_failed")) if status == "failed" else None,
        accepted,
        accepted + timedelta(milliseconds=fields.get("allowed_ms", 5_000)),
        None if status == "running" else accepted + took,
        fields.get("cost", 0),
        fields.get("budget"),
        json.dumps(fields["path"]) if "path" in fields else None,
        json.dumps(fields["labels"]) if "labels" in fields else None,
    )


async def insert_step(
    pool: "asyncpg.Pool[asyncpg.Record]",
    run_id: str,
    key: str,
    ready: datetime,
    text: str = "hi",
    **fields: Any,
) -> None:
    """Insert a step that waited for `queue_ms` and ran for `ran_ms`, with its failed attempts before
    it."""
    began = ready + timedelta(milliseconds=fields.get("queue_ms", 10))
    state = fields.get("state", "succeeded")
    attempt = fields.get("attempt", 1)
    await pool.execute(
        STEP_ROW,
        run_id,
        key,
        fields.get("node", key),
        fields.get("type", "python"),
        state,
        attempt,
        json.dumps(fields.get("value", {"text": text})),
        error_of(text) if state == "failed" or "error" in fields else None,
        ready,
        began,
        None if state == "waiting" else began + timedelta(milliseconds=fields.get("ran_ms", 30)),
        ready + timedelta(milliseconds=fields.get("allowed_ms", 5_000)),
        fields.get("worker", "w"),
        fields.get("role", "leaf"),
    )
    for number in range(1, attempt):
        await pool.execute(
            "INSERT INTO hocket.attempt (run_id, key, attempt, outcome, error, started_at, finished_at)"
            " VALUES ($1, $2, $3, 'failed', $4, $5, $5)",
            run_id,
            key,
            number,
            error_of(text),
            ready,
        )


async def insert_call(
    pool: "asyncpg.Pool[asyncpg.Record]", call_id: str, started: datetime, **fields: Any
) -> None:
    """Insert a model call of a run's step, with the routing decision behind it."""
    await pool.execute(
        CALL_ROW,
        call_id,
        fields.get("kind", "call"),
        fields.get("tenant", "default"),
        fields.get("pipeline", "greet"),
        fields.get("run_id"),
        fields.get("node", "hello"),
        fields.get("model", "smart"),
        fields.get("backend", "dear"),
        fields.get("cost", 0.01),
        started,
        json.dumps(fields["decision"]) if "decision" in fields else None,
        json.dumps(fields["labels"]) if "labels" in fields else None,
        fields.get("latency_ms", 800),
    )


async def insert_line(
    pool: "asyncpg.Pool[asyncpg.Record]",
    run_id: str,
    step: str,
    at: datetime,
    text: str,
    **more: Any,
) -> None:
    """Insert a line logged by a handler; the day's partition is created if it is missing."""
    async with pool.acquire() as connection:
        await day_partitions.make_ahead(connection)
    await pool.execute(
        LINE_ROW,
        more.get("tenant", "default"),
        run_id,
        step,
        more.get("number", 0),
        at,
        more.get("level", "info"),
        text,
        json.dumps(more["fields"]) if "fields" in more else None,
    )
