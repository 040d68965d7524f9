CREATE OR REPLACE VIEW report.run_budgets WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                                           AS runs,
       avg(budget_usd)                                    AS mean_budget_usd,
       avg(spent_usd)                                     AS mean_spent_usd,
       avg(spent_usd / nullif(budget_usd, 0))             AS mean_burn,
       count(*) FILTER (WHERE spent_usd >= budget_usd)    AS runs_exhausted
FROM hocket.run
WHERE budget_usd IS NOT NULL
GROUP BY tenant, pipeline, version, (accepted_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.run_budgets IS
    'How much of their budget runs use up: mean_burn is what they spent of it (1 is all), runs_exhausted how many spent it all. Calls of the HTTP door are not in it.';
