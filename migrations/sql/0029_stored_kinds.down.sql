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
DROP TRIGGER kind_of_calls ON hocket.step;
DROP TRIGGER kind_of_calls ON hocket.attempt;
DROP FUNCTION hocket.note_race();
DROP FUNCTION hocket.note_attempt();
DROP FUNCTION hocket.kind_of(text, text, text, integer, text);
DROP TABLE hocket.kind_change;
