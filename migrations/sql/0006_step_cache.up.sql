-- The step cache: outputs by content hash, who computes one now, and who waits for it.
CREATE TABLE hocket.step_cache (
    key           text        PRIMARY KEY,
    tenant        text        NOT NULL,
    output        text,
    filled_at     timestamptz,
    fresh_until   timestamptz,
    filled_run    text,
    filled_step   text,
    cost_usd      numeric     NOT NULL DEFAULT 0 CHECK (cost_usd >= 0),
    claimed_run   text,
    claimed_step  text,
    claimed_until timestamptz,
    expires_at    timestamptz NOT NULL,
    CHECK (num_nulls(output, filled_at, fresh_until, filled_run, filled_step) IN (0, 5)),
    CHECK (num_nulls(claimed_run, claimed_step, claimed_until) IN (0, 3))
);
CREATE INDEX step_cache_expiry ON hocket.step_cache (expires_at);
COMMENT ON TABLE hocket.step_cache IS
    'Outputs of steps with `cache`, by a hash of tenant, node type, own fields and input.';
COMMENT ON COLUMN hocket.step_cache.output IS 'JSON text, as the step gave it.';
COMMENT ON COLUMN hocket.step_cache.cost_usd IS 'What the attempt cost that computed the output.';
COMMENT ON COLUMN hocket.step_cache.claimed_until IS 'Until when others wait for the claiming step.';
COMMENT ON COLUMN hocket.step_cache.expires_at IS 'When the row is swept: no output is fresh, no claim holds.';

CREATE TABLE hocket.step_cache_waiter (
    key         text        NOT NULL REFERENCES hocket.step_cache ON DELETE CASCADE,
    run_id      text        NOT NULL,
    step        text        NOT NULL,
    place       bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    claim_until timestamptz NOT NULL,
    PRIMARY KEY (key, run_id, step)
);
COMMENT ON TABLE hocket.step_cache_waiter IS
    'Steps that wait for a claimed entry, in the order they came; claim_until is how long each may compute.';

ALTER TABLE hocket.step DROP CONSTRAINT step_state_check;
ALTER TABLE hocket.step ADD CONSTRAINT step_state_check CHECK (state IN
    ('looking_up', 'dispatched', 'backoff', 'open', 'waiting',
     'succeeded', 'failed', 'skipped', 'cancelled')) NOT VALID;
ALTER TABLE hocket.step VALIDATE CONSTRAINT step_state_check;

-- steps whose output their run did not compute itself; reports add up what that saved
CREATE INDEX step_served ON hocket.step (run_id) WHERE facts ? 'source';

CREATE VIEW report.cache_savings AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       s.path                                       AS node,
       (s.finished_at AT TIME ZONE 'UTC')::date     AS day,
       count(*)                                     AS hits,
       count(DISTINCT s.run_id)                     AS runs,
       sum((s.facts #>> '{source,saved_usd}')::numeric) AS saved_usd
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.facts ? 'source' AND s.facts #>> '{source,kind}' = 'cache'
GROUP BY r.tenant, r.pipeline, r.version, s.path, (s.finished_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.cache_savings IS
    'Steps that the cache served, by pipeline version, node and day (UTC), and what the calls cost that it spared.';
GRANT SELECT ON report.cache_savings TO hocket_report;
