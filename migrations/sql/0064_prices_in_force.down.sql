DROP INDEX hocket.tenant_blob_by_time;

CREATE OR REPLACE VIEW report.usage WITH (security_invoker = true) AS
SELECT u.call_id,
       CASE
           WHEN u.run_id IN (SELECT run_id FROM hocket.kind_change)
           THEN hocket.kind_of(u.tenant, u.run_id, u.step, u.attempt, u.kind)
           ELSE u.kind
       END AS kind,
       u.tenant,
       u.pipeline,
       u.version,
       u.run_id,
       u.node,
       u.step,
       u.attempt,
       u.model,
       u.backend,
       u.replica,
       u.status,
       u.error_code,
       u.input_tokens,
       u.output_tokens,
       u.cached_tokens,
       u.cost_usd,
       u.started_at,
       u.latency_ms,
       u.experiment,
       u.arm,
       u.estimated,
       u.amended,
       u.labels,
       u.cache_write_tokens,
       u.unpriced,
       u.input_usd_per_mtok,
       u.output_usd_per_mtok,
       u.cached_usd_per_mtok,
       u.cache_write_usd_per_mtok,
       u.request_usd,
       'USD'::text AS currency
FROM hocket.usage u;
DROP FUNCTION hocket.kind_in_run(text, text, text, integer, text, text, timestamptz);

CREATE OR REPLACE VIEW hocket.live_charge_of_run WITH (security_invoker = true) AS
SELECT run_id, sum(cost_usd) AS cost_usd
FROM (SELECT s.run_id, (s.facts ->> 'charged_usd')::numeric AS cost_usd
      FROM hocket.step s
      WHERE s.facts ? 'charged_usd' AND s.role = 'leaf' AND s.type NOT IN ('llm', 'planning', 'agent')
        AND s.finished_at >= (SELECT least(open_from, (SELECT min(from_at) FROM hocket.live_day)) FROM hocket.rollup_state)
      UNION ALL
      SELECT k.run_id, k.cost_usd
      FROM hocket.kept_charge k
      WHERE k.finished_at >= (SELECT least(open_from, (SELECT min(from_at) FROM hocket.live_day)) FROM hocket.rollup_state)
     ) charged
GROUP BY run_id;

DROP VIEW report.model_swap;
DROP VIEW report.prices;
ALTER TABLE hocket.price DROP COLUMN in_force_at;

CREATE VIEW report.prices WITH (security_invoker = true) AS
SELECT tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, cached_usd_per_mtok,
       cache_write_usd_per_mtok, request_usd, currency, effective_from
FROM hocket.price;
COMMENT ON VIEW report.prices IS
    'The prices that calls of a tenant were booked at, by model and backend, each from its first call on. What a single call cost stands in its own row of report.usage, with its prices.';

CREATE VIEW report.model_swap WITH (security_invoker = true) AS
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
GRANT SELECT ON report.prices, report.model_swap TO hocket_report;
