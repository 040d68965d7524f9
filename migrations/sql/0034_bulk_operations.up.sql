-- Operations on many runs, which go on when the process that works on them is stopped.

CREATE TABLE hocket.bulk_operation (
    operation_id  text        PRIMARY KEY,
    tenant        text        NOT NULL,
    action        text        NOT NULL CHECK (action IN ('cancel', 'retry')),
    state         text        NOT NULL DEFAULT 'running'
        CHECK (state IN ('running', 'done', 'stopped')),
    filter        jsonb       NOT NULL,
    reason        text        NOT NULL DEFAULT '',
    matching      bigint      NOT NULL,
    changed       bigint      NOT NULL DEFAULT 0,
    skipped       bigint      NOT NULL DEFAULT 0,
    place         text        NOT NULL DEFAULT '',
    created_by    text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    owner         text        NOT NULL DEFAULT '',
    leased_until  timestamptz NOT NULL DEFAULT '-infinity',
    CHECK ((state = 'running') = (finished_at IS NULL))
);
CREATE INDEX bulk_operation_running ON hocket.bulk_operation (created_at) WHERE state = 'running';
CREATE INDEX bulk_operation_recent
    ON hocket.bulk_operation (tenant, created_at DESC, operation_id DESC);
COMMENT ON TABLE hocket.bulk_operation IS 'Runs that are cancelled or retried by filter, with progress.';
COMMENT ON COLUMN hocket.bulk_operation.place IS 'The run behind which it goes on, as a cursor.';

-- Lists and operations of all pipelines of a tenant go by time.
CREATE INDEX run_by_time ON hocket.run (tenant, accepted_at DESC, run_id DESC);
