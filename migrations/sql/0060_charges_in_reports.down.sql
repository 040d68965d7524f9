CREATE OR REPLACE VIEW hocket.live_cost_by_pipeline_day WITH (security_invoker = true) AS
SELECT tenant, pipeline, day, sum(calls)::bigint AS calls, count(DISTINCT run_id) AS runs,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens,
       sum(cost_usd) AS cost_usd
FROM (SELECT tenant, pipeline, day, run_id, count(*) AS calls, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      GROUP BY tenant, pipeline, day, run_id) of_run
GROUP BY tenant, pipeline, day;

CREATE OR REPLACE VIEW hocket.live_cost_by_tenant WITH (security_invoker = true) AS
SELECT tenant, day, sum(calls)::bigint AS calls, count(DISTINCT run_id) AS runs, sum(input_tokens) AS input_tokens,
       sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
FROM (SELECT tenant, day, run_id, count(*) AS calls, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      GROUP BY tenant, day, run_id) of_run
GROUP BY tenant, day;

CREATE OR REPLACE VIEW hocket.live_cost_by_label WITH (security_invoker = true) AS
SELECT u.tenant, label.key AS label, label.value AS value, u.pipeline, u.day, sum(u.calls)::bigint AS calls,
       count(DISTINCT u.run_id) AS runs, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
       sum(u.cost_usd) AS cost_usd
FROM (SELECT tenant, pipeline, day, run_id, labels, count(*) AS calls, sum(input_tokens) AS input_tokens,
             sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      WHERE labels IS NOT NULL
      GROUP BY tenant, pipeline, day, run_id, labels
      OFFSET 0) u
CROSS JOIN LATERAL jsonb_each_text(u.labels) AS label
GROUP BY u.tenant, label.key, label.value, u.pipeline, u.day;

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

CREATE OR REPLACE VIEW hocket.live_cost_by_own_run WITH (security_invoker = true) AS
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

CREATE OR REPLACE VIEW report.cost_by_node WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, model, backend,
       sum(calls)::bigint                                AS calls,
       sum(failed_calls)::bigint                         AS failed_calls,
       sum(input_tokens)                                 AS input_tokens,
       sum(output_tokens)                                AS output_tokens,
       sum(cost_usd)                                     AS cost_usd,
       (sum(latency_ms) / sum(calls))::double precision  AS mean_latency_ms
FROM hocket.all_calls
GROUP BY tenant, pipeline, version, node, model, backend;

DROP VIEW hocket.live_charge_of_run;
DROP VIEW hocket.live_charge;
DO $$
DECLARE place text;
BEGIN
    FOR place IN SELECT indexrelid::regclass::text FROM pg_index
                 WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'hocket'::regnamespace)
                   AND pg_get_expr(indpred, indrelid) LIKE '%charged_usd%' LOOP
        EXECUTE 'DROP INDEX ' || place;
    END LOOP;
END
$$;

-- days that were rolled up otherwise
INSERT INTO hocket.dirty_day (tenant, day)
SELECT r.tenant, hocket.day_of(at)
FROM hocket.step s
JOIN hocket.run r USING (run_id)
CROSS JOIN LATERAL unnest(ARRAY[r.accepted_at, s.finished_at]) AS at
WHERE s.facts ? 'charged_usd' AND at < hocket.today()
GROUP BY 1, 2;

COMMENT ON VIEW report.cost_by_pipeline_day IS
    'What each pipeline cost on each day (UTC, by the start of the call). pipeline is null for calls made outside runs.';
COMMENT ON VIEW report.cost_by_tenant IS
    'What each tenant''s calls cost on each day (UTC).';
COMMENT ON VIEW report.cost_by_kind IS
    'What each node cost on each day (UTC), by kind: call, retry, speculation, cascade.';
COMMENT ON VIEW report.cost_by_label IS
    'Chargeback: what the calls with each label cost, by pipeline and day (UTC). A call with two labels counts under both: sum one label at a time.';
COMMENT ON VIEW report.cost_by_node IS
    'What each node of each pipeline version cost, by model and backend.';
COMMENT ON VIEW report.cost_by_run IS
    'What each run cost. met_deadline: it gave its result in time (null while it runs). Status `external`: calls of the HTTP door name the run, and Hocket did not run it; `deleted`: the run is not kept any more, its calls are. Both have the start of their first call as accepted_at.';
