-- What became of a call stands in its row: reports over many days asked the steps of every call.
-- A run of which an attempt fails or a race ends is noted; until the ledger has written the kinds of its calls
-- (`ledger/kinds.py`), reports derive them as before.

CREATE TABLE hocket.kind_change (
    run_id   text        NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE hocket.kind_change IS
    'Runs whose calls may be of another kind than their rows say, until the ledger has looked; a run may be noted many times.';
CREATE INDEX kind_change_by_time ON hocket.kind_change (noted_at);
ALTER TABLE hocket.kind_change ENABLE ROW LEVEL SECURITY;
CREATE POLICY report_run ON hocket.kind_change FOR SELECT TO hocket_report
    USING (EXISTS (SELECT FROM hocket.run r WHERE r.run_id = kind_change.run_id));
GRANT SELECT (run_id) ON hocket.kind_change TO hocket_report;

CREATE FUNCTION hocket.kind_of(its_tenant text, its_run text, its_step text, its_attempt integer, stored text)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE
        WHEN EXISTS (
            WITH RECURSIVE above(run_id, step) AS (
                SELECT own.run_id, its_step
                FROM hocket.run own
                WHERE own.run_id = its_run AND own.tenant = its_tenant
                UNION ALL
                SELECT r.parent ->> 'run_id', r.parent ->> 'step'
                FROM above
                JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = its_tenant
                WHERE r.parent IS NOT NULL
            )
            SELECT
            FROM above
            CROSS JOIN LATERAL generate_series(1, length(above.step)) AS mark(place)
            JOIN hocket.step race
              ON race.run_id = above.run_id AND race.key = left(above.step, place - 1)
            WHERE substr(above.step, place, 1) = '~'
              AND race.facts ? 'winner'
              AND race.facts ->> 'winner' <> left(above.step, place)
                  || substring(substr(above.step, place + 1) FROM '^[A-Za-z0-9_-]+')
        ) THEN 'speculation'
        WHEN stored <> 'call' THEN stored
        WHEN EXISTS (
            SELECT
            FROM hocket.attempt a
            JOIN hocket.run own ON own.run_id = a.run_id AND own.tenant = its_tenant
            WHERE a.run_id = its_run AND a.key = its_step AND a.attempt = its_attempt
              AND a.outcome IN ('failed', 'timed_out')
        ) THEN 'retry'
        ELSE 'call'
    END;
END;
COMMENT ON FUNCTION hocket.kind_of(text, text, text, integer, text) IS
    'What a call was, by the attempts and races that are committed; `stored` is what its row says.';
REVOKE ALL ON FUNCTION hocket.kind_of(text, text, text, integer, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hocket.kind_of(text, text, text, integer, text) TO hocket_report;

CREATE FUNCTION hocket.note_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.kind_change (run_id) VALUES (NEW.run_id);
    RETURN NULL;
END
$$;
CREATE FUNCTION hocket.note_race() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.kind_change (run_id)
    WITH RECURSIVE below(run_id) AS (
        SELECT NEW.run_id
        UNION
        SELECT r.run_id FROM below JOIN hocket.run r ON r.parent ->> 'run_id' = below.run_id
        WHERE r.parent IS NOT NULL
    )
    SELECT run_id FROM below;
    RETURN NULL;
END
$$;
CREATE TRIGGER kind_of_calls AFTER INSERT ON hocket.attempt FOR EACH ROW
    WHEN (NEW.outcome IN ('failed', 'timed_out')) EXECUTE FUNCTION hocket.note_attempt();
CREATE TRIGGER kind_of_calls AFTER INSERT OR UPDATE ON hocket.step FOR EACH ROW
    WHEN (NEW.facts ? 'winner') EXECUTE FUNCTION hocket.note_race();

-- those of before: the ledger goes through them in small pieces
INSERT INTO hocket.kind_change (run_id)
SELECT run_id FROM hocket.attempt WHERE outcome IN ('failed', 'timed_out')
UNION
SELECT run_id FROM (
    WITH RECURSIVE below(run_id) AS (
        SELECT run_id FROM hocket.step WHERE facts ? 'winner'
        UNION
        SELECT r.run_id FROM below JOIN hocket.run r ON r.parent ->> 'run_id' = below.run_id
        WHERE r.parent IS NOT NULL
    )
    SELECT run_id FROM below
) raced;

CREATE OR REPLACE VIEW report.usage WITH (security_invoker = true) AS
SELECT u.call_id,
       CASE
           WHEN u.run_id IN (SELECT run_id FROM hocket.kind_change)
           THEN hocket.kind_of(u.tenant, u.run_id, u.step, u.attempt, u.kind)
           ELSE u.kind
       END AS kind,
       u.tenant,
       u.pipeline,
       u.version,
       u.run_id,
       u.node,
       u.step,
       u.attempt,
       u.model,
       u.backend,
       u.replica,
       u.status,
       u.error_code,
       u.input_tokens,
       u.output_tokens,
       u.cached_tokens,
       u.cost_usd,
       u.started_at,
       u.latency_ms,
       u.experiment,
       u.arm,
       u.estimated,
       u.amended,
       u.labels,
       u.cache_write_tokens,
       u.unpriced,
       u.input_usd_per_mtok,
       u.output_usd_per_mtok,
       u.cached_usd_per_mtok,
       u.cache_write_usd_per_mtok,
       u.request_usd,
       'USD'::text AS currency
FROM hocket.usage u;
