-- Reports of many calls a day are quicker: Postgres knows how many rows the open day has before it plans, runs of one's own
-- and of elsewhere are added up apart, and rows of rollups are compared with the days that changed by a hash.

CREATE FUNCTION hocket.open_from() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE COST 10000
BEGIN ATOMIC
    SELECT open_from FROM hocket.rollup_state;
END;
COMMENT ON FUNCTION hocket.open_from() IS
    'The first moment that is not rolled up. Unlike a subquery, its value is known when a query is planned.';
CREATE FUNCTION hocket.open_until() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE COST 10000
BEGIN ATOMIC
    SELECT ends FROM hocket.rollup_state;
END;
COMMENT ON FUNCTION hocket.open_until() IS 'Where rows end for the ledger while it rolls up; infinity for others.';
REVOKE ALL ON FUNCTION hocket.open_from(), hocket.open_until() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hocket.open_from(), hocket.open_until() TO hocket_report;

CREATE OR REPLACE VIEW hocket.live_usage WITH (security_invoker = true) AS
SELECT u.*, (u.started_at AT TIME ZONE 'UTC')::date AS day
FROM report.usage u
WHERE u.started_at >= hocket.open_from()
  AND u.started_at < hocket.open_until()
UNION ALL
SELECT u.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT * FROM report.usage u
    WHERE u.tenant = d.tenant AND u.started_at >= d.from_at AND u.started_at < d.to_at
    OFFSET 0
) u;

CREATE OR REPLACE VIEW hocket.live_run WITH (security_invoker = true) AS
SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.accepted_at, r.deadline_at, r.finished_at, r.parent,
       r.budget_usd, r.spent_usd, (r.accepted_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.run r
WHERE r.accepted_at >= hocket.open_from()
  AND r.accepted_at < hocket.open_until()
UNION ALL
SELECT r.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.accepted_at, r.deadline_at, r.finished_at,
           r.parent, r.budget_usd, r.spent_usd
    FROM hocket.run r
    WHERE r.tenant = d.tenant AND r.accepted_at >= d.from_at AND r.accepted_at < d.to_at
    OFFSET 0
) r;

CREATE OR REPLACE VIEW hocket.live_ended_run WITH (security_invoker = true) AS
SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.deadline_at, r.finished_at, r.critical_path,
       (r.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.run r
WHERE r.finished_at IS NOT NULL
  AND r.finished_at >= hocket.open_from()
  AND r.finished_at < hocket.open_until()
UNION ALL
SELECT r.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.run_id, r.tenant, r.pipeline, r.version, r.status, r.deadline_at, r.finished_at, r.critical_path
    FROM hocket.run r
    WHERE r.tenant = d.tenant AND r.finished_at IS NOT NULL
      AND r.finished_at >= d.from_at AND r.finished_at < d.to_at
    OFFSET 0
) r;

CREATE OR REPLACE VIEW hocket.live_step WITH (security_invoker = true) AS
SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path, s.type, s.role, s.state, s.took_ms, s.ready_at,
       s.dispatched_at, s.started_at, s.finished_at, s.facts, (s.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.finished_at >= hocket.open_from()
  AND s.finished_at < hocket.open_until()
UNION ALL
SELECT s.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path, s.type, s.role, s.state, s.took_ms, s.ready_at,
           s.dispatched_at, s.started_at, s.finished_at, s.facts
    FROM hocket.step s
    JOIN hocket.run r USING (run_id)
    WHERE r.tenant = d.tenant AND s.finished_at >= d.from_at AND s.finished_at < d.to_at
    OFFSET 0
) s;

-- runs are counted by a hash: all calls would be sorted for it
CREATE OR REPLACE VIEW hocket.live_cost_by_kind WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, kind, sum(calls)::bigint AS calls, sum(runs)::bigint AS runs,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM (SELECT tenant, pipeline, version, node, day, kind, count(*) AS calls, 0 AS runs, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      GROUP BY tenant, pipeline, version, node, day, kind
      UNION ALL
      SELECT tenant, pipeline, version, node, day, kind, NULL, 1, NULL, NULL, NULL
      FROM (SELECT DISTINCT tenant, pipeline, version, node, day, kind, run_id
            FROM hocket.live_usage WHERE run_id IS NOT NULL OFFSET 0) named) counted
GROUP BY tenant, pipeline, version, node, day, kind;

CREATE VIEW hocket.live_cost_by_own_run WITH (security_invoker = true) AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       r.run_id,
       r.status,
       r.accepted_at,
       r.finished_at,
       extract(epoch FROM r.finished_at - r.accepted_at) * 1000 AS duration_ms,
       CASE
           WHEN r.finished_at IS NULL THEN NULL
           ELSE r.status IN ('succeeded', 'degraded') AND r.finished_at <= r.deadline_at
       END                                                      AS met_deadline,
       coalesce(u.calls, 0)                                     AS calls,
       coalesce(u.input_tokens, 0)                              AS input_tokens,
       coalesce(u.output_tokens, 0)                             AS output_tokens,
       coalesce(u.cost_usd, 0)                                  AS cost_usd,
       r.day
FROM hocket.live_run r
LEFT JOIN LATERAL (
    SELECT count(*) AS calls, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
           sum(u.cost_usd) AS cost_usd
    FROM (SELECT input_tokens, output_tokens, cost_usd FROM hocket.usage
          WHERE run_id = r.run_id AND tenant = r.tenant AND started_at >= r.accepted_at - interval '1 day'
          UNION ALL
          SELECT u.input_tokens, u.output_tokens, u.cost_usd
          FROM hocket.stray_call s
          JOIN hocket.usage u ON u.call_id = s.call_id AND u.started_at = s.started_at
          WHERE s.run_id = r.run_id AND u.tenant = r.tenant
            AND s.started_at < r.accepted_at - interval '1 day') u
) u ON true;

CREATE VIEW hocket.live_cost_by_other_run WITH (security_invoker = true) AS
SELECT u.tenant, u.pipeline, u.version, u.run_id,
       CASE WHEN u.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END AS status,
       u.started_at AS accepted_at, NULL::timestamptz AS finished_at, NULL::numeric AS duration_ms,
       NULL::boolean AS met_deadline, u.calls, u.input_tokens, u.output_tokens, u.cost_usd, u.day
FROM (SELECT tenant, run_id, day, max(pipeline) AS pipeline, max(version) AS version, min(started_at) AS started_at,
             count(*) AS calls, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
             sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      JOIN (SELECT tenant, run_id
            FROM (SELECT DISTINCT tenant, run_id FROM hocket.live_usage WHERE run_id IS NOT NULL OFFSET 0) named
            WHERE NOT EXISTS (SELECT FROM hocket.run r WHERE r.tenant = named.tenant AND r.run_id = named.run_id)
            OFFSET 0) other USING (tenant, run_id)
      GROUP BY tenant, run_id, day) u;

CREATE OR REPLACE VIEW hocket.live_cost_by_run WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, run_id, status, accepted_at, finished_at, duration_ms, met_deadline, calls, input_tokens,
       output_tokens, cost_usd, day
FROM hocket.live_cost_by_own_run
UNION ALL
SELECT tenant, pipeline, version, run_id, status, accepted_at, finished_at, duration_ms, met_deadline, calls, input_tokens,
       output_tokens, cost_usd, day
FROM hocket.live_cost_by_other_run;

CREATE INDEX rollup_cost_by_other_run ON hocket.rollup_cost_by_run (tenant, run_id) WHERE status IN ('external', 'deleted');

CREATE OR REPLACE VIEW report.cost_by_run WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, run_id, status, accepted_at, finished_at, duration_ms, met_deadline, calls,
       input_tokens, output_tokens, cost_usd
FROM hocket.rollup_cost_by_run
WHERE status NOT IN ('external', 'deleted')
  AND (tenant, day) NOT IN (SELECT DISTINCT tenant, day FROM hocket.dirty_day)
UNION ALL
SELECT tenant, pipeline, version, run_id, status, accepted_at, finished_at, duration_ms, met_deadline, calls,
       input_tokens, output_tokens, cost_usd
FROM hocket.live_cost_by_own_run
UNION ALL
SELECT tenant, max(pipeline), max(version), run_id, max(status), min(accepted_at), NULL::timestamptz, NULL::numeric,
       NULL::boolean, sum(calls)::bigint, sum(input_tokens), sum(output_tokens), sum(cost_usd)
FROM (SELECT tenant, pipeline, version, run_id, status, accepted_at, calls, input_tokens, output_tokens, cost_usd
      FROM hocket.rollup_cost_by_run
      WHERE status IN ('external', 'deleted')
        AND (tenant, day) NOT IN (SELECT DISTINCT tenant, day FROM hocket.dirty_day)
      UNION ALL
      SELECT tenant, pipeline, version, run_id, status, accepted_at, calls, input_tokens, output_tokens, cost_usd
      FROM hocket.live_cost_by_other_run) other
GROUP BY tenant, run_id;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['own', 'other'] LOOP
        EXECUTE format('GRANT SELECT ON hocket.live_cost_by_%s_run TO hocket_report', name);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['calls', 'cost_by_pipeline_day', 'cost_by_tenant', 'cost_by_kind', 'cost_by_label', 'waste',
        'experiments', 'cost_by_run', 'cost_by_outcome', 'run_budgets', 'slo_attainment', 'critical_path',
        'latency_by_node', 'cache_savings', 'other_entries'] LOOP
        EXECUTE format($view$
            CREATE OR REPLACE VIEW hocket.all_%I WITH (security_invoker = true) AS
            SELECT * FROM hocket.rollup_%I r
            WHERE (r.tenant, r.day) NOT IN (SELECT DISTINCT d.tenant, d.day FROM hocket.dirty_day d)
            UNION ALL
            SELECT * FROM hocket.live_%I
        $view$, name, name, name);
    END LOOP;
END
$$;
