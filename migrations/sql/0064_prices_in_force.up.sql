-- A price that is in force again after another one is the latest; and a run whose idempotency key was used before, by a run
-- that has been deleted, has only its own charges and its own attempts.

ALTER TABLE hocket.price ADD COLUMN in_force_at timestamptz;
COMMENT ON COLUMN hocket.price.in_force_at IS
    'The start of a call at this price, later than those known at the others of its model and backend then; the latest of them is the price in force. Null: no call since effective_from has been noted.';

CREATE OR REPLACE VIEW report.prices WITH (security_invoker = true) AS
SELECT tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, cached_usd_per_mtok,
       cache_write_usd_per_mtok, request_usd, currency, effective_from,
       greatest(effective_from, in_force_at) AS in_force_at
FROM hocket.price;
COMMENT ON COLUMN report.prices.in_force_at IS
    'When the price was last found in force: of a model at a backend, the price with the latest one is in force. It is later than effective_from if there was another price in between.';

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

-- a former run had ended before this one was accepted
CREATE OR REPLACE VIEW hocket.live_charge_of_run WITH (security_invoker = true) AS
SELECT run_id, sum(cost_usd) AS cost_usd
FROM (SELECT s.run_id, (s.facts ->> 'charged_usd')::numeric AS cost_usd
      FROM hocket.step s
      WHERE s.facts ? 'charged_usd' AND s.role = 'leaf' AND s.type NOT IN ('llm', 'planning', 'agent')
        AND s.finished_at >= (SELECT least(open_from, (SELECT min(from_at) FROM hocket.live_day)) FROM hocket.rollup_state)
      UNION ALL
      SELECT k.run_id, k.cost_usd
      FROM hocket.kept_charge k
      JOIN hocket.run r ON r.run_id = k.run_id AND k.finished_at >= r.accepted_at
      WHERE k.finished_at >= (SELECT least(open_from, (SELECT min(from_at) FROM hocket.live_day)) FROM hocket.rollup_state)
     ) charged
GROUP BY run_id;

-- in a function, because a view that asked for more of each row could not be read in parallel
CREATE FUNCTION hocket.kind_in_run(its_tenant text, its_run text, its_step text, its_attempt integer, stored text, its_call text,
                                   began timestamptz)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE
        WHEN EXISTS (
            SELECT
            FROM hocket.run own
            WHERE own.run_id = its_run AND own.tenant = its_tenant AND began < own.accepted_at - interval '1 day'
              AND NOT EXISTS (SELECT FROM hocket.stray_call s WHERE s.call_id = its_call AND s.started_at = began)
        ) THEN stored
        ELSE hocket.kind_of(its_tenant, its_run, its_step, its_attempt, stored)
    END;
END;
COMMENT ON FUNCTION hocket.kind_in_run(text, text, text, integer, text, text, timestamptz) IS
    'What a call was (hocket.kind_of). One of a deleted run whose key was used again keeps what its row says: the attempts and races are those of the run that has its id now.';
REVOKE ALL ON FUNCTION hocket.kind_in_run(text, text, text, integer, text, text, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hocket.kind_in_run(text, text, text, integer, text, text, timestamptz) TO hocket_report;

CREATE OR REPLACE VIEW report.usage WITH (security_invoker = true) AS
SELECT u.call_id,
       CASE
           WHEN u.run_id IN (SELECT run_id FROM hocket.kind_change)
           THEN hocket.kind_in_run(u.tenant, u.run_id, u.step, u.attempt, u.kind, u.call_id, u.started_at)
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

-- retention looks for old blobs by it
CREATE INDEX tenant_blob_by_time ON hocket.tenant_blob (created_at);
