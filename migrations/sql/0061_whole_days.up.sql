-- Forecasts and model swaps of the last week read its calls of the first day one by one, from this time of
-- day on: up to a day of calls beyond the open one. They now take the 7 days before today, and today.

CREATE OR REPLACE VIEW report.month_forecast WITH (security_invoker = true) AS
WITH span AS (
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC')                      AS first,
           date_trunc('month', now() AT TIME ZONE 'UTC') + interval '1 month' AS ends,
           now() AT TIME ZONE 'UTC'                                           AS at,
           7 + extract(epoch FROM (now() AT TIME ZONE 'UTC')::time) / 86400   AS days
), spent AS (
    SELECT tenant, pipeline,
           coalesce(sum(cost_usd) FILTER (
               WHERE day >= date_trunc('month', now() AT TIME ZONE 'UTC')::date), 0) AS month_usd,
           coalesce(sum(cost_usd) FILTER (
               WHERE day >= (now() AT TIME ZONE 'UTC')::date - 7), 0)                AS week_usd
    FROM hocket.all_cost_by_pipeline_day
    WHERE day >= least(date_trunc('month', now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date - 7)
    GROUP BY tenant, pipeline
)
SELECT spent.tenant, spent.pipeline, span.first::date AS month, spent.month_usd AS spent_usd,
       spent.week_usd / span.days AS usd_per_day,
       spent.month_usd + spent.week_usd / span.days * (extract(epoch FROM span.ends - span.at) / 86400)
           AS forecast_usd
FROM spent, span;
COMMENT ON VIEW report.month_forecast IS
    'What each pipeline has spent in this month (UTC), and what it comes to at its end if it goes on as in the 7 days before today and today. Compare it with the budgets of the gateway''s configuration.';
COMMENT ON COLUMN report.month_forecast.usd_per_day IS
    'US dollars a day, over the 7 days (UTC) before today and what there is of today.';

CREATE OR REPLACE VIEW report.model_swap WITH (security_invoker = true) AS
WITH calls AS (
    SELECT tenant, pipeline, node, model, backend,
           sum(metered_calls)::bigint                              AS calls,
           sum(metered_usd)                                        AS cost_usd,
           sum(input_tokens - cached_tokens - cache_write_tokens)  AS fresh,
           sum(cached_tokens)                                      AS cached,
           sum(cache_write_tokens)                                 AS written,
           sum(output_tokens)                                      AS output
    FROM hocket.all_calls
    WHERE day >= (now() AT TIME ZONE 'UTC')::date - 7 AND metered_calls > 0
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
COMMENT ON VIEW report.model_swap IS
    'What the calls of each node in the 7 days (UTC) before today and today would have cost at the latest price of each other model that the tenant uses: the same tokens, which another model would cut otherwise and answer with more or fewer.';
