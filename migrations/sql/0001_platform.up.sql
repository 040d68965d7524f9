-- The platform's tables. Only the coordinator, the ledger and the admin API touch them.
CREATE SCHEMA hocket;

CREATE TABLE hocket.pipeline (
    tenant      text        NOT NULL,
    name        text        NOT NULL,
    version     integer     NOT NULL CHECK (version > 0),
    spec        jsonb       NOT NULL,
    spec_hash   text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text        NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, name, version)
);
COMMENT ON TABLE hocket.pipeline IS 'Pipeline versions; a version never changes once written.';

CREATE TABLE hocket.partition (
    partition      integer     PRIMARY KEY CHECK (partition >= 0),
    epoch          bigint      NOT NULL DEFAULT 0,
    owner          text        NOT NULL DEFAULT '',
    applied_seq    bigint      NOT NULL DEFAULT 0,
    applied_msg_id text        NOT NULL DEFAULT '',
    updated_at     timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE hocket.partition IS
    'One row per shard of runs: who owns it (fenced by epoch) and how far its log is applied.';

CREATE TABLE hocket.run (
    run_id           text        PRIMARY KEY,
    partition        integer     NOT NULL,
    tenant           text        NOT NULL,
    pipeline         text        NOT NULL,
    version          integer     NOT NULL,
    status           text        NOT NULL CHECK (status IN
        ('running', 'succeeded', 'degraded', 'failed', 'cancelled', 'expired', 'rejected')),
    priority         text        NOT NULL CHECK (priority IN ('interactive', 'standard', 'batch')),
    input            jsonb       NOT NULL,
    output           jsonb,
    error            jsonb,
    idempotency_key  text,
    accepted_at      timestamptz NOT NULL,
    deadline_at      timestamptz NOT NULL,
    finished_at      timestamptz,
    budget_usd       numeric,
    spent_usd        numeric     NOT NULL DEFAULT 0,
    degraded         boolean     NOT NULL DEFAULT false,
    reply_to         text,
    progress         boolean     NOT NULL DEFAULT false,
    traceparent      text,
    parent           jsonb,
    facts            jsonb,
    CHECK ((status = 'running') = (finished_at IS NULL))
);
CREATE INDEX run_in_flight ON hocket.run (partition) WHERE finished_at IS NULL;
CREATE INDEX run_recent ON hocket.run (tenant, pipeline, accepted_at DESC);
CREATE INDEX run_finished ON hocket.run (partition, finished_at) WHERE finished_at IS NOT NULL;
COMMENT ON COLUMN hocket.run.facts IS 'What the coordinator needs beside the columns to go on.';

CREATE TABLE hocket.step (
    run_id        text        NOT NULL REFERENCES hocket.run ON DELETE CASCADE,
    key           text        NOT NULL,
    path          text        NOT NULL,
    type          text        NOT NULL,
    role          text        NOT NULL,
    parent        text,
    state         text        NOT NULL CHECK (state IN
        ('dispatched', 'backoff', 'open', 'waiting',
         'succeeded', 'failed', 'skipped', 'cancelled')),
    attempt       integer     NOT NULL,
    input         jsonb,
    output        jsonb,
    error         jsonb,
    ready_at      timestamptz NOT NULL,
    dispatched_at timestamptz,
    started_at    timestamptz,
    finished_at   timestamptz,
    deadline_at   timestamptz,
    slack_ms      double precision,
    wake_at       timestamptz,
    worker        text,
    facts         jsonb,
    PRIMARY KEY (run_id, key)
);
COMMENT ON TABLE hocket.step IS
    'One row per step, containers included; the key is its path in the run, e.g. research[3]/read.';
COMMENT ON COLUMN hocket.step.wake_at IS 'When the coordinator acts on it next: timeout or backoff.';

CREATE TABLE hocket.attempt (
    run_id        text        NOT NULL REFERENCES hocket.run ON DELETE CASCADE,
    key           text        NOT NULL,
    attempt       integer     NOT NULL,
    outcome       text        NOT NULL CHECK (outcome IN
        ('failed', 'timed_out', 'cancelled', 'late')),
    error         jsonb,
    dispatched_at timestamptz,
    started_at    timestamptz,
    finished_at   timestamptz NOT NULL,
    worker        text,
    PRIMARY KEY (run_id, key, attempt, outcome)
);
COMMENT ON TABLE hocket.attempt IS
    'Attempts that did not give their step its result; the one that did is in the step''s row.';

CREATE TABLE hocket.usage (
    call_id             text        PRIMARY KEY,
    kind                text        NOT NULL DEFAULT 'call',
    tenant              text        NOT NULL,
    pipeline            text,
    version             integer,
    run_id              text,
    node                text,
    step                text,
    attempt             integer,
    model               text        NOT NULL,
    backend             text        NOT NULL,
    replica             text        NOT NULL DEFAULT '',
    status              text        NOT NULL CHECK (status IN ('ok', 'error', 'cancelled')),
    error_code          text,
    input_tokens        bigint      NOT NULL DEFAULT 0 CHECK (input_tokens >= 0),
    output_tokens       bigint      NOT NULL DEFAULT 0 CHECK (output_tokens >= 0),
    cached_tokens       bigint      NOT NULL DEFAULT 0 CHECK (cached_tokens >= 0),
    input_usd_per_mtok  numeric     NOT NULL DEFAULT 0,
    output_usd_per_mtok numeric     NOT NULL DEFAULT 0,
    cached_usd_per_mtok numeric,
    request_usd         numeric     NOT NULL DEFAULT 0,
    cost_usd            numeric     NOT NULL DEFAULT 0 CHECK (cost_usd >= 0),
    started_at          timestamptz NOT NULL,
    latency_ms          double precision NOT NULL,
    recorded_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX usage_of_run ON hocket.usage (run_id);
CREATE INDEX usage_by_day ON hocket.usage (tenant, pipeline, started_at);
COMMENT ON TABLE hocket.usage IS
    'The ledger: one row per model call, whatever became of it; the price it used stands in the row.';

CREATE TABLE hocket.duration (
    tenant      text             NOT NULL,
    pipeline    text             NOT NULL,
    path        text             NOT NULL,
    weight      double precision NOT NULL,
    mean_ms     double precision NOT NULL,
    variance    double precision NOT NULL,
    updated_at  timestamptz      NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, pipeline, path)
);
COMMENT ON TABLE hocket.duration IS
    'How long the nodes of a pipeline take: decayed weight, mean and variance (ms^2).';

CREATE TABLE hocket.span (
    trace_id       text        NOT NULL,
    span_id        text        NOT NULL,
    parent_span_id text,
    run_id         text,
    name           text        NOT NULL,
    service        text        NOT NULL,
    started_at     timestamptz NOT NULL,
    ended_at       timestamptz NOT NULL,
    status         text        NOT NULL DEFAULT 'unset',
    attributes     jsonb       NOT NULL DEFAULT '{}',
    PRIMARY KEY (trace_id, span_id)
);
CREATE INDEX span_of_run ON hocket.span (run_id);
