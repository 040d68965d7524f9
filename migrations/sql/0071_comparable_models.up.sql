-- What calls would have cost elsewhere is said of models that could have made them; and the views of experiments say how they
-- count runs.

CREATE OR REPLACE VIEW report.model_swap WITH (security_invoker = true) AS
WITH calls AS (
    SELECT tenant, pipeline, node, model, backend,
           sum(metered_calls)::bigint                              AS calls,
           sum(metered_usd)                                        AS cost_usd,
           sum(input_tokens - cached_tokens - cache_write_tokens)  AS fresh,
           sum(cached_tokens)                                      AS cached,
           sum(cache_write_tokens)                                 AS written,
           sum(output_tokens)                                      AS output,
           bool_or(sum(output_tokens) > 0) OVER (PARTITION BY tenant, model, backend) AS answers
    FROM hocket.all_calls
    WHERE day >= (now() AT TIME ZONE 'UTC')::date - 7 AND metered_calls > 0
    GROUP BY tenant, pipeline, node, model, backend
), models AS (
    -- not read from calls: a part that is read twice is made whole first, for all tenants, whatever is asked for
    SELECT tenant, model, backend, bool_or(output_tokens > 0) AS answers
    FROM hocket.all_calls
    WHERE day >= (now() AT TIME ZONE 'UTC')::date - 7 AND metered_calls > 0
    GROUP BY tenant, model, backend
), latest AS (
    SELECT DISTINCT ON (tenant, model, backend) * FROM hocket.price
    ORDER BY tenant, model, backend, greatest(effective_from, in_force_at) DESC
), others AS (
    -- models without calls are told by their price: those that make vectors have none for output
    SELECT p.*, coalesce(m.answers, CASE WHEN p.output_usd_per_mtok > 0 THEN true
                                         WHEN p.input_usd_per_mtok > 0 THEN false END) AS answers
    FROM latest p LEFT JOIN models m ON (m.tenant, m.model, m.backend) = (p.tenant, p.model, p.backend)
)
SELECT c.tenant, c.pipeline, c.node, c.model, c.backend, c.calls, c.cost_usd,
       p.model AS other_model, p.backend AS other_backend,
       c.calls * p.request_usd + (c.fresh * p.input_usd_per_mtok
           + c.cached * coalesce(p.cached_usd_per_mtok, p.input_usd_per_mtok)
           + c.written * coalesce(p.cache_write_usd_per_mtok, p.input_usd_per_mtok)
           + c.output * p.output_usd_per_mtok) / 1000000 AS other_cost_usd
FROM calls c
JOIN others p ON p.tenant = c.tenant AND p.backend <> c.backend AND p.answers = c.answers;
COMMENT ON VIEW report.model_swap IS
    'What the calls of each node in the 7 days (UTC) before today and today would have cost at the latest price of each other model that the tenant uses, at other backends: the same tokens, which another model would cut otherwise and answer with more or fewer. Models whose calls in these days had output are compared with each other, and those whose calls had none, as for embeddings, too. A model without such calls counts as one with output if it has a price for that, as one without if it has a price for input alone, and is left out if it has a price for requests alone. Models that cost nothing are never among the others: report.prices does not have them.';

COMMENT ON VIEW report.experiments IS
    'What the arms of each experiment did on each day (UTC): calls, failures, latency, cost, and how the runs ended that used them. Runs are counted by their status: neither the expression `succeeded` of the experiment nor outcomes that were reported change that, unlike in GET /v1/experiments.';
COMMENT ON VIEW report.experiment_results IS
    'What each arm of an experiment came to at each node, with intervals of 95 %: success of its runs (Wilson), mean latency of a run''s calls and cost of a run at the node (normal; null for a single run). Intervals of two arms that do not overlap differ. A run is a success if its status says so: neither the expression `succeeded` of the experiment nor outcomes that were reported change that, unlike in GET /v1/experiments.';
