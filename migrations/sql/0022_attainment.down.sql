DROP VIEW report.slo_attainment;
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
           GROUP BY tenant, run_id) u USING (tenant, run_id)
UNION ALL
SELECT u.tenant,
       max(u.pipeline),
       max(u.version),
       u.run_id,
       CASE WHEN u.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END,
       min(u.started_at),
       NULL::timestamptz,
       NULL::numeric,
       NULL::boolean,
       count(*),
       sum(u.input_tokens),
       sum(u.output_tokens),
       sum(u.cost_usd)
FROM hocket.usage u
WHERE u.run_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM hocket.run r WHERE r.tenant = u.tenant AND r.run_id = u.run_id)
GROUP BY u.tenant, u.run_id;
COMMENT ON VIEW report.cost_by_run IS
    'What each run cost. Status `external`: calls of the HTTP door name the run, and Hocket did not run it; `deleted`: the run is not kept any more, its calls are. Both have the start of their first call as accepted_at.';
