-- What a task is charged to: its labels stand with its run, its sub-runs and their calls.

ALTER TABLE hocket.run ADD COLUMN labels jsonb;
ALTER TABLE hocket.usage ADD COLUMN labels jsonb;
COMMENT ON COLUMN hocket.run.labels IS 'The labels of its task, {"customer": "acme"}; null for none.';
COMMENT ON COLUMN hocket.usage.labels IS
    'The labels of its run; of a call of the HTTP door those that it brings itself, too.';
CREATE INDEX run_by_label ON hocket.run USING gin (labels jsonb_path_ops) WHERE labels IS NOT NULL;
CREATE INDEX usage_by_label ON hocket.usage USING gin (labels jsonb_path_ops) WHERE labels IS NOT NULL;
GRANT SELECT (labels) ON hocket.run TO hocket_report;
GRANT SELECT (labels) ON hocket.usage TO hocket_report;

CREATE OR REPLACE VIEW report.usage WITH (security_invoker = true) AS
SELECT u.call_id,
       CASE
           WHEN EXISTS (
               WITH RECURSIVE above(run_id, step) AS (
                   SELECT own.run_id, u.step
                   FROM hocket.run own
                   WHERE own.run_id = u.run_id AND own.tenant = u.tenant
                   UNION ALL
                   SELECT r.parent ->> 'run_id', r.parent ->> 'step'
                   FROM above
                   JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = u.tenant
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
           WHEN u.kind <> 'call' THEN u.kind
           WHEN EXISTS (
               SELECT
               FROM hocket.attempt a
               JOIN hocket.run own ON own.run_id = a.run_id AND own.tenant = u.tenant
               WHERE a.run_id = u.run_id AND a.key = u.step AND a.attempt = u.attempt
                 AND a.outcome IN ('failed', 'timed_out')
           ) THEN 'retry'
           ELSE 'call'
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
       u.labels
FROM hocket.usage u;

CREATE VIEW report.cost_by_label WITH (security_invoker = true) AS
SELECT u.tenant,
       label.key                                                     AS label,
       label.value                                                   AS value,
       u.pipeline,
       (u.started_at AT TIME ZONE 'UTC')::date                       AS day,
       count(*)                                                      AS calls,
       count(DISTINCT u.run_id)                                      AS runs,
       sum(u.input_tokens)                                           AS input_tokens,
       sum(u.output_tokens)                                          AS output_tokens,
       sum(u.cost_usd)                                               AS cost_usd
FROM hocket.usage u
CROSS JOIN LATERAL jsonb_each_text(u.labels) AS label
GROUP BY u.tenant, label.key, label.value, u.pipeline, (u.started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.cost_by_label IS
    'Chargeback: what the calls with each label cost, by pipeline and day (UTC). A call with two labels counts under both: sum one label at a time.';
GRANT SELECT ON report.cost_by_label TO hocket_report;
