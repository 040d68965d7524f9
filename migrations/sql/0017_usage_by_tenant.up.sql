-- What a call used is said to be an estimate where its backend did not meter it, and a record that the
-- table could not hold as it was is booked with the fields that were changed. A run's cost is what calls
-- of its own tenant cost: a call may name any run.
ALTER TABLE hocket.usage
    ADD COLUMN estimated boolean NOT NULL DEFAULT false,
    ADD COLUMN amended   text;
COMMENT ON COLUMN hocket.usage.estimated IS
    'The backend did not say what the call used: tokens and cost are estimates (docs/reference/costs.md).';
COMMENT ON COLUMN hocket.usage.amended IS
    'The fields that could not be stored as they came, and were cut or left out; the record is a dead letter.';

CREATE OR REPLACE VIEW report.usage AS
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
       u.amended
FROM hocket.usage u;

CREATE OR REPLACE VIEW report.cost_by_run AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       r.run_id,
       r.status,
       r.accepted_at,
       r.finished_at,
       extract(epoch FROM r.finished_at - r.accepted_at) * 1000 AS duration_ms,
       r.finished_at <= r.deadline_at                           AS met_deadline,
       coalesce(u.calls, 0)                                     AS calls,
       coalesce(u.input_tokens, 0)                              AS input_tokens,
       coalesce(u.output_tokens, 0)                             AS output_tokens,
       coalesce(u.cost_usd, 0)                                  AS cost_usd
FROM hocket.run r
LEFT JOIN (SELECT tenant,
                  run_id,
                  count(*)           AS calls,
                  sum(input_tokens)  AS input_tokens,
                  sum(output_tokens) AS output_tokens,
                  sum(cost_usd)      AS cost_usd
           FROM hocket.usage
           GROUP BY tenant, run_id) u USING (tenant, run_id);

CREATE OR REPLACE VIEW report.experiments AS
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
LEFT JOIN hocket.run r ON r.run_id = u.run_id AND r.tenant = u.tenant
WHERE u.experiment IS NOT NULL
GROUP BY u.experiment, u.arm, u.tenant, u.pipeline, u.node, (u.started_at AT TIME ZONE 'UTC')::date;

CREATE OR REPLACE VIEW report.lost_calls AS
SELECT tenant, pipeline, version, run_id, node, step, attempt, call_id, model, backend, replica, gateway,
       expected_usd, started_at, deadline_at
FROM hocket.open_call o
WHERE deadline_at < now() - interval '1 minute'
  AND NOT EXISTS (SELECT FROM hocket.usage u
                  WHERE u.call_id = o.call_id AND u.tenant = o.tenant AND u.started_at >= o.started_at);
