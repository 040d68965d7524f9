-- How each model call came to its backend, which experiment it was part of, and calls that nobody was
-- asked for.
ALTER TABLE hocket.usage
    ADD COLUMN experiment text,
    ADD COLUMN arm        text,
    ADD COLUMN decision   jsonb;
COMMENT ON COLUMN hocket.usage.decision IS
    'What routing looked at, and why the replica was chosen; `hocket gateway explain` shows it.';

CREATE TABLE hocket.refused_call (
    call_id    text        PRIMARY KEY,
    tenant     text        NOT NULL,
    pipeline   text,
    version    integer,
    run_id     text,
    node       text,
    step       text,
    attempt    integer,
    model      text        NOT NULL,
    error_code text        NOT NULL,
    reason     text        NOT NULL,
    gateway    text        NOT NULL DEFAULT '',
    refused_at timestamptz NOT NULL
);
CREATE INDEX refused_call_by_time ON hocket.refused_call (refused_at);
COMMENT ON TABLE hocket.refused_call IS
    'Model calls that no backend was asked for, the last one of each call id; the ledger forgets them after a week.';

CREATE OR REPLACE VIEW report.usage AS
SELECT u.call_id,
       CASE
           WHEN EXISTS (
               WITH RECURSIVE above(run_id, step) AS (
                   SELECT u.run_id, u.step
                   UNION ALL
                   SELECT r.parent ->> 'run_id', r.parent ->> 'step'
                   FROM above
                   JOIN hocket.run r ON r.run_id = above.run_id
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
       u.arm
FROM hocket.usage u;
COMMENT ON VIEW report.usage IS
    'Every model call and what became of it: kind is speculation (its branch lost a race, or it was a hedge that lost), cascade (a cheaper answer that was not accepted), retry (its attempt failed and was made again) or call.';
COMMENT ON VIEW report.cost_by_kind IS
    'What each node cost on each day (UTC), by kind: call, retry, speculation, cascade.';

CREATE VIEW report.experiments AS
SELECT u.experiment,
       u.arm,
       u.tenant,
       u.pipeline,
       u.node,
       (u.started_at AT TIME ZONE 'UTC')::date                              AS day,
       count(*)                                                             AS calls,
       count(*) FILTER (WHERE u.status = 'error')                           AS failed_calls,
       count(DISTINCT u.run_id)                                             AS runs,
       count(DISTINCT u.run_id) FILTER (WHERE r.status = 'succeeded')       AS runs_succeeded,
       count(DISTINCT u.run_id) FILTER (WHERE r.status IN ('degraded', 'failed', 'expired'))
                                                                            AS runs_not_succeeded,
       sum(u.cost_usd)                                                      AS cost_usd,
       avg(u.latency_ms) FILTER (WHERE u.status = 'ok')                     AS mean_latency_ms,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY u.latency_ms)
           FILTER (WHERE u.status = 'ok')                                   AS p95_latency_ms
FROM hocket.usage u
LEFT JOIN hocket.run r ON r.run_id = u.run_id
WHERE u.experiment IS NOT NULL
GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, (u.started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.experiments IS
    'What the arms of each experiment did on each day (UTC): calls, failures, latency, cost, and how the runs ended that used them.';
GRANT SELECT ON report.experiments TO hocket_report;
