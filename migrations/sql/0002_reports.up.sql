-- Stable, documented views for cost reports; the role hocket_report reads nothing else.
CREATE SCHEMA report;

CREATE VIEW report.cost_by_pipeline_day AS
SELECT tenant,
       pipeline,
       (started_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                               AS calls,
       count(DISTINCT run_id)                 AS runs,
       sum(input_tokens)                      AS input_tokens,
       sum(output_tokens)                     AS output_tokens,
       sum(cached_tokens)                     AS cached_tokens,
       sum(cost_usd)                          AS cost_usd
FROM hocket.usage
GROUP BY tenant, pipeline, (started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.cost_by_pipeline_day IS
    'What each pipeline cost on each day (UTC, by the start of the call). pipeline is null for calls made outside runs.';

CREATE VIEW report.cost_by_run AS
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
LEFT JOIN (SELECT run_id,
                  count(*)           AS calls,
                  sum(input_tokens)  AS input_tokens,
                  sum(output_tokens) AS output_tokens,
                  sum(cost_usd)      AS cost_usd
           FROM hocket.usage
           GROUP BY run_id) u USING (run_id);
COMMENT ON VIEW report.cost_by_run IS
    'What each run cost, how long it took and whether it met its deadline (null while it runs).';

CREATE VIEW report.cost_by_node AS
SELECT tenant,
       pipeline,
       version,
       node,
       model,
       backend,
       count(*)                                AS calls,
       count(*) FILTER (WHERE status <> 'ok')  AS failed_calls,
       sum(input_tokens)                       AS input_tokens,
       sum(output_tokens)                      AS output_tokens,
       sum(cost_usd)                           AS cost_usd,
       avg(latency_ms)                         AS mean_latency_ms
FROM hocket.usage
GROUP BY tenant, pipeline, version, node, model, backend;
COMMENT ON VIEW report.cost_by_node IS 'What each node of each pipeline version cost, by model and backend.';

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'hocket_report') THEN
        CREATE ROLE hocket_report NOLOGIN;
    END IF;
END
$$;
GRANT USAGE ON SCHEMA report TO hocket_report;
GRANT SELECT ON ALL TABLES IN SCHEMA report TO hocket_report;
