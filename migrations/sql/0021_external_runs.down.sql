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
COMMENT ON VIEW report.cost_by_run IS
    'What each run cost, how long it took and whether it met its deadline (null while it runs).';
