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
    ORDER BY tenant, model, backend, greatest(effective_from, in_force_at) DESC
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

COMMENT ON VIEW report.experiments IS
    'What the arms of each experiment did on each day (UTC): calls, failures, latency, cost, and how the runs ended that used them.';
COMMENT ON VIEW report.experiment_results IS
    'What each arm of an experiment came to at each node, with intervals of 95 %: success of its runs (Wilson), mean latency of a run''s calls and cost of a run at the node (normal; null for a single run). Intervals of two arms that do not overlap differ.';
