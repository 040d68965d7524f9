-- Forecasts and model swaps read the calls of the day seven days ago since this time of day again.

-- whole days from the rollup, and of the day seven days ago its calls since this time of day
CREATE OR REPLACE VIEW report.month_forecast WITH (security_invoker = true) AS
WITH span AS (
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC')                      AS first,
           date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month' AS ends,
           now() AT TIME ZONE 'UTC'                                           AS at
), costs AS (
    SELECT tenant, pipeline,
           CASE WHEN day >= date_trunc('month', now() AT TIME ZONE 'UTC')::date THEN cost_usd END AS month_usd,
           CASE WHEN day > (now() AT TIME ZONE 'UTC')::date - 7 THEN cost_usd END                 AS week_usd
    FROM hocket.all_cost_by_pipeline_day
    WHERE day >= least(date_trunc('month', now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date - 6)
    UNION ALL
    SELECT tenant, pipeline, NULL, cost_usd
    FROM hocket.usage
    WHERE started_at >= now() - interval '7 days'
      AND started_at < ((now() AT TIME ZONE 'UTC')::date - 6)::timestamp AT TIME ZONE 'UTC'
), spent AS (
    SELECT tenant, pipeline, coalesce(sum(month_usd), 0) AS spent_usd, coalesce(sum(week_usd), 0)  / 7 AS usd_per_day
    FROM costs
    GROUP BY tenant, pipeline
)
SELECT spent.tenant, spent.pipeline, span.first::date AS month, spent.spent_usd, spent.usd_per_day,
       spent.spent_usd + spent.usd_per_day * (extract(epoch FROM span.ends - span.at) / 86400) AS forecast_usd
FROM spent, span;

CREATE OR REPLACE VIEW report.model_swap WITH (security_invoker = true) AS
WITH pieces AS (
    SELECT tenant, pipeline, node, model, backend, metered_calls AS calls, metered_usd AS cost_usd,
           input_tokens - cached_tokens - cache_write_tokens AS fresh, cached_tokens AS cached,
           cache_write_tokens AS written, output_tokens AS output
    FROM hocket.all_calls
    WHERE day > (now() AT TIME ZONE 'UTC')::date - 7 AND metered_calls > 0
    UNION ALL
    SELECT tenant, pipeline, node, model, backend, 1, cost_usd, input_tokens - cached_tokens - cache_write_tokens,
           cached_tokens, cache_write_tokens, output_tokens
    FROM hocket.usage
    WHERE started_at >= now() - interval '7 days'
      AND started_at < ((now() AT TIME ZONE 'UTC')::date - 6)::timestamp AT TIME ZONE 'UTC'
      AND (input_tokens > 0 OR output_tokens > 0)
), calls AS (
    SELECT tenant, pipeline, node, model, backend, sum(calls)::bigint AS calls, sum(cost_usd) AS cost_usd,
           sum(fresh) AS fresh, sum(cached) AS cached, sum(written) AS written, sum(output) AS output
    FROM pieces
    GROUP BY tenant, pipeline, node, model, backend
), latest AS (
    SELECT DISTINCT ON (tenant, model, backend) * FROM hocket.price
    ORDER BY tenant, model, backend, effective_from DESC
)
SELECT c.tenant, c.pipeline, c.node, c.model, c.backend, c.calls, c.cost_usd,
       p.model AS other_model, p.backend AS other_backend,
       c.calls * p.request_usd + (c.fresh * p.input_usd_per_mtok
           + c.cached * coalesce(p.cached_usd_per_mtok, p.input_usd_per_mtok)
           + c.written * coalesce(p.cache_write_usd_per_mtok, p.input_usd_per_mtok)
           + c.output * p.output_usd_per_mtok) / 1000000 AS other_cost_usd
FROM calls c
JOIN latest p ON p.tenant = c.tenant AND (p.model, p.backend) <> (c.model, c.backend);

COMMENT ON VIEW report.month_forecast IS
    'What each pipeline has spent in this month (UTC), and what it comes to at its end if it goes on as in the last 7 days. Compare it with the budgets of the gateway''s configuration.';
COMMENT ON VIEW report.model_swap IS
    'What the calls of the last 7 days of each node would have cost at the latest price of each other model that the tenant uses: the same tokens, which another model would cut otherwise and answer with more or fewer.';
COMMENT ON COLUMN report.month_forecast.usd_per_day IS 'US dollars a day, over the last 7 days.';
