-- One run, one budget, one total: what a run used up of its budget has the calls of the HTTP door in it.

CREATE OR REPLACE VIEW report.run_budgets WITH (security_invoker = true) AS
WITH RECURSIVE door(tenant, run_id, usd) AS (
    SELECT tenant, run_id, sum(cost_usd)
    FROM hocket.usage
    WHERE call_id LIKE 'http:%' AND run_id IS NOT NULL
    GROUP BY tenant, run_id
), above(tenant, run_id, usd) AS (
    SELECT tenant, run_id, usd FROM door
    UNION ALL
    SELECT above.tenant, r.parent ->> 'run_id', above.usd
    FROM above
    JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = above.tenant
    WHERE r.parent IS NOT NULL
), outside(tenant, run_id, usd) AS (
    SELECT tenant, run_id, sum(usd) FROM above GROUP BY tenant, run_id
), runs AS (
    SELECT r.tenant, r.pipeline, r.version, r.accepted_at, r.budget_usd,
           r.spent_usd + coalesce(outside.usd, 0) AS spent_usd
    FROM hocket.run r
    LEFT JOIN outside ON outside.run_id = r.run_id AND outside.tenant = r.tenant
    WHERE r.budget_usd IS NOT NULL
)
SELECT tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                                           AS runs,
       avg(budget_usd)                                    AS mean_budget_usd,
       avg(spent_usd)                                     AS mean_spent_usd,
       avg(spent_usd / nullif(budget_usd, 0))             AS mean_burn,
       count(*) FILTER (WHERE spent_usd >= budget_usd)    AS runs_exhausted
FROM runs
GROUP BY tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.run_budgets IS
    'How much of their budget runs use up: mean_burn is what they spent of it (1 is all), runs_exhausted how many spent it all. It counts what sub-runs spent, and calls of the HTTP door that name the run or one of them.';
