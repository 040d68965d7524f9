-- Prompts and answers of calls, as far as a policy has them kept, apart from all else and with a retention of
-- their own. No login for reports reads them.

CREATE TABLE hocket.content (
    call_id    text        NOT NULL,
    tenant     text        NOT NULL CHECK (tenant <> ''),
    pipeline   text,
    run_id     text,
    step       text,
    attempt    integer,
    model      text        NOT NULL,
    kept       text        NOT NULL CHECK (kept IN ('redacted', 'full')),
    prompt     jsonb       NOT NULL,
    answer     jsonb       NOT NULL,
    is_cut     boolean     NOT NULL DEFAULT false,
    started_at timestamptz NOT NULL,
    kept_at    timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (kept_at);
CREATE INDEX content_of_run ON hocket.content (tenant, run_id, started_at);
CREATE INDEX content_of_call ON hocket.content (call_id);
ALTER TABLE hocket.content ENABLE ROW LEVEL SECURITY;
COMMENT ON TABLE hocket.content IS
    'Prompts and answers that a policy has kept, by the day they were written; the janitor makes and drops its partitions.';
COMMENT ON COLUMN hocket.content.kept IS 'redacted: personal data is replaced by placeholders; full: as it was.';
