-- Rows of one commit are sent as arrays of these types (JSON as text, times as epoch milliseconds). asyncpg encodes a row as a
-- whole faster than the arrays of its columns, and Postgres reads it faster. Each process keeps a type's attributes as it first
-- read them: for another column, a later migration creates another type.

CREATE TYPE hocket.written_run AS (
    run_id text, partition integer, tenant text, pipeline text, version integer, status text, priority text, input text,
    output text, error text, idempotency_key text, accepted_at double precision, deadline_at double precision,
    finished_at double precision, budget_usd numeric, spent_usd numeric, degraded boolean, reply_to text,
    progress boolean, traceparent text, parent text, facts text, critical_path text, parked_until double precision,
    labels text
);
CREATE TYPE hocket.written_step AS (
    run_id text, key text, path text, type text, role text, parent text, state text, attempt integer, input text,
    output text, error text, ready_at double precision, dispatched_at double precision, started_at double precision,
    finished_at double precision, deadline_at double precision, slack_ms double precision, wake_at double precision,
    worker text, facts text, queued_at double precision, took_ms double precision, tenant text
);
CREATE TYPE hocket.written_attempt AS (
    run_id text, key text, attempt integer, outcome text, error text, dispatched_at double precision,
    started_at double precision, finished_at double precision, worker text, tenant text
);
CREATE TYPE hocket.written_outlook AS (
    partition integer, tenant text, pipeline text, path text, weight double precision, mean_ms double precision,
    variance double precision
);
