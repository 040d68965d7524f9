-- Calls of runs that are not there (of elsewhere, or deleted) are few as a rule: their runs are found first, and only their
-- calls are added up. All calls of the open days were, and the sums of runs that are there thrown away.

CREATE OR REPLACE VIEW hocket.live_cost_by_other_run WITH (security_invoker = true) AS
SELECT named.tenant, u.pipeline, u.version, named.run_id,
       CASE WHEN named.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END AS status,
       u.started_at AS accepted_at, NULL::timestamptz AS finished_at, NULL::numeric AS duration_ms,
       NULL::boolean AS met_deadline, u.calls, u.input_tokens, u.output_tokens, u.cost_usd, named.day
FROM (SELECT DISTINCT tenant, run_id, day
      FROM hocket.live_usage
      WHERE run_id IS NOT NULL
      OFFSET 0) named
LEFT JOIN LATERAL (SELECT true AS is_there FROM hocket.run r
                   WHERE r.run_id = named.run_id AND r.tenant = named.tenant OFFSET 0) run ON true
CROSS JOIN LATERAL (
    SELECT max(c.pipeline) AS pipeline, max(c.version) AS version, min(c.started_at) AS started_at, count(*) AS calls,
           sum(c.input_tokens) AS input_tokens, sum(c.output_tokens) AS output_tokens, sum(c.cost_usd) AS cost_usd
    FROM hocket.usage c
    WHERE c.run_id = named.run_id AND c.tenant = named.tenant
      AND c.started_at >= named.day::timestamp AT TIME ZONE 'UTC'
      AND c.started_at < (named.day + 1)::timestamp AT TIME ZONE 'UTC'
    OFFSET 0) u
WHERE run.is_there IS NULL;
