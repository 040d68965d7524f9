-- Lines that handlers of steps logged, kept as long as prompts and answers, by the day they were written.
-- No login for reports reads them.

CREATE TABLE hocket.log_line (
    tenant   text        NOT NULL CHECK (tenant <> ''),
    run_id   text        NOT NULL,
    step     text        NOT NULL,
    attempt  integer     NOT NULL,
    delivery integer     NOT NULL,
    number   integer     NOT NULL CHECK (number >= 0),
    at       timestamptz NOT NULL,
    level    text        NOT NULL CHECK (level IN ('debug', 'info', 'warning', 'error', 'critical')),
    text     text        NOT NULL,
    fields   jsonb,
    worker   text        NOT NULL DEFAULT '',
    kept_at  timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (kept_at);
CREATE INDEX log_line_of_run ON hocket.log_line (tenant, run_id, at, step, attempt, delivery, number);
ALTER TABLE hocket.log_line ENABLE ROW LEVEL SECURITY;
COMMENT ON TABLE hocket.log_line IS
    'What handlers of steps logged; the janitor makes and drops its partitions.';
COMMENT ON COLUMN hocket.log_line.number IS 'The place of a line among those of its delivery of its attempt.';
