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
