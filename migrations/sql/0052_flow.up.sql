-- Flow control by key: where runs wait before they start, and when those started that rates count.

CREATE TABLE hocket.flow_pipeline (
    tenant    text   NOT NULL,
    pipeline  text   NOT NULL,
    decisions bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, pipeline)
);
COMMENT ON TABLE hocket.flow_pipeline IS
    'Whoever decides about the waiting runs of a pipeline holds the lock of its row, and reads after it has it.';

CREATE TABLE hocket.flow_place (
    run_id      text        NOT NULL,
    gate        smallint    NOT NULL,
    tenant      text        NOT NULL,
    pipeline    text        NOT NULL,
    kind        text        NOT NULL
        CHECK (kind IN ('debounce', 'rate_limit', 'singleton', 'concurrency', 'throttle')),
    key         text        NOT NULL,
    rule        jsonb       NOT NULL,
    accepted_at timestamptz NOT NULL,
    since       timestamptz NOT NULL,
    is_last     boolean     NOT NULL,
    state       text        NOT NULL CHECK (state IN ('ahead', 'waiting', 'passed', 'refused')),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    error       jsonb,
    replaced_by text,
    started     boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (run_id, gate),
    CHECK ((state = 'refused') = (error IS NOT NULL))
);
CREATE INDEX flow_place_waiting ON hocket.flow_place (tenant, pipeline, kind, key, accepted_at, run_id)
    WHERE state = 'waiting';
CREATE INDEX flow_place_passed ON hocket.flow_place (tenant, pipeline, kind, key) WHERE state = 'passed';
CREATE INDEX flow_place_untold ON hocket.flow_place (changed_at)
    WHERE NOT started AND (state = 'refused' OR (state = 'passed' AND is_last));
CREATE INDEX flow_place_replaced ON hocket.flow_place (run_id) WHERE replaced_by IS NOT NULL;
COMMENT ON TABLE hocket.flow_place IS
    'A row for each gate of a run that has not ended: written with its acceptance, deleted with its end.';
COMMENT ON COLUMN hocket.flow_place.since IS
    'When the first of the runs was accepted that were put off for this one (debounce).';
COMMENT ON COLUMN hocket.flow_place.started IS
    'The run was seen with a step after it passed its last gate, and need not be told again.';

CREATE TABLE hocket.flow_start (
    tenant   text        NOT NULL,
    pipeline text        NOT NULL,
    kind     text        NOT NULL,
    key      text        NOT NULL,
    run_id   text        NOT NULL,
    at       timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    PRIMARY KEY (run_id, kind)
);
CREATE INDEX flow_start_recent ON hocket.flow_start (tenant, pipeline, kind, key, at);
CREATE INDEX flow_start_over ON hocket.flow_start (until);
COMMENT ON TABLE hocket.flow_start IS 'Starts that a rate counts, until its period is over.';
