-- Calls of the open days are added up for all runs again, to find those of runs that are not there.

CREATE OR REPLACE VIEW hocket.live_cost_by_other_run WITH (security_invoker = true) AS
SELECT u.tenant, u.pipeline, u.version, u.run_id,
       CASE WHEN u.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END AS status,
       u.started_at AS accepted_at, NULL::timestamptz AS finished_at, NULL::numeric AS duration_ms,
       NULL::boolean AS met_deadline, u.calls, u.input_tokens, u.output_tokens, u.cost_usd, u.day
FROM (SELECT tenant, run_id, day, max(pipeline) AS pipeline, max(version) AS version, min(started_at) AS started_at,
             count(*) AS calls, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
             sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      WHERE run_id IS NOT NULL
      GROUP BY tenant, run_id, day
      OFFSET 0) u
LEFT JOIN LATERAL (SELECT true AS is_there FROM hocket.run r
                   WHERE r.run_id = u.run_id AND r.tenant = u.tenant OFFSET 0) run ON true
WHERE run.is_there IS NULL;
