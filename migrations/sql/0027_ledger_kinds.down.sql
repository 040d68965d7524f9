DROP VIEW report.ledger;
DROP VIEW report.shared_cost;
DROP VIEW report.unpriced_calls;
DROP VIEW report.prices;
DROP VIEW report.cost_by_kind;
DROP VIEW report.usage;
DROP TABLE hocket.price;
CREATE VIEW report.usage WITH (security_invoker = true) AS
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
COMMENT ON VIEW report.usage IS
    'Every model call and what became of it: kind is speculation (its branch lost a race, or it was a hedge that lost), cascade (a cheaper answer that was not accepted), retry (its attempt failed and was made again) or call.';

CREATE VIEW report.cost_by_kind WITH (security_invoker = true) AS
SELECT tenant,
       pipeline,
       version,
       node,
       (started_at AT TIME ZONE 'UTC')::date AS day,
       kind,
       count(*)                              AS calls,
       count(DISTINCT run_id)                AS runs,
       sum(input_tokens)                     AS input_tokens,
       sum(output_tokens)                    AS output_tokens,
       sum(cost_usd)                         AS cost_usd
FROM report.usage
GROUP BY tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date, kind;

COMMENT ON VIEW report.usage IS
    'Every model call and what became of it: kind is speculation (its branch lost a race, or it was a hedge that lost), cascade (a cheaper answer that was not accepted), retry (its attempt failed and was made again) or call.';
COMMENT ON VIEW report.cost_by_kind IS
    'What each node cost on each day (UTC), by kind: call, retry, speculation, cascade.';
GRANT SELECT ON report.usage, report.cost_by_kind TO hocket_report;
DROP INDEX hocket.usage_of_door;
ALTER TABLE hocket.usage DROP COLUMN unpriced;
