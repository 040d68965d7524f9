-- Kinds of entries beside calls, prices with the moment from which they were in force, calls without a price.

ALTER TABLE hocket.usage ADD COLUMN unpriced boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN hocket.usage.unpriced IS
    'Nobody had told the gateway a price of the backend: the cost of 0 is not known to be one.';
-- totals of runs look for calls of the HTTP door, which steps do not know of
CREATE INDEX usage_of_door ON hocket.usage (tenant, run_id) WHERE call_id LIKE 'http:%';

CREATE TABLE hocket.price (
    tenant                   text        NOT NULL,
    model                    text        NOT NULL,
    backend                  text        NOT NULL,
    input_usd_per_mtok       numeric     NOT NULL,
    output_usd_per_mtok      numeric     NOT NULL,
    cached_usd_per_mtok      numeric,
    cache_write_usd_per_mtok numeric,
    request_usd              numeric     NOT NULL,
    currency                 text        NOT NULL DEFAULT 'USD' CHECK (currency = 'USD'),
    effective_from           timestamptz NOT NULL,
    UNIQUE NULLS NOT DISTINCT (tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok,
                               cached_usd_per_mtok, cache_write_usd_per_mtok, request_usd)
);
COMMENT ON TABLE hocket.price IS
    'The prices that calls of a tenant were booked at, from the first such call on; rows of hocket.usage keep their own.';
INSERT INTO hocket.price (tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, cached_usd_per_mtok,
                          cache_write_usd_per_mtok, request_usd, effective_from)
SELECT tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, cached_usd_per_mtok,
       cache_write_usd_per_mtok, request_usd, min(started_at)
FROM hocket.usage
WHERE input_usd_per_mtok > 0 OR output_usd_per_mtok > 0 OR request_usd > 0
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

ALTER TABLE hocket.price ENABLE ROW LEVEL SECURITY;
CREATE POLICY report_tenant ON hocket.price FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant()));
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT policyname, roles[1] AS login FROM pg_policies
                 WHERE schemaname = 'hocket' AND tablename = 'usage' AND policyname LIKE 'report\_all\_%' LOOP
        EXECUTE format('CREATE POLICY %I ON hocket.price FOR SELECT TO %I USING (true)',
                       found.policyname, found.login);
    END LOOP;
END
$$;
GRANT SELECT ON hocket.price TO hocket_report;
GRANT SELECT (cache_write_tokens, unpriced, input_usd_per_mtok, output_usd_per_mtok, cached_usd_per_mtok,
              cache_write_usd_per_mtok, request_usd) ON hocket.usage TO hocket_report;
GRANT SELECT (type, role, state, ready_at, queued_at, dispatched_at, started_at, took_ms)
    ON hocket.step TO hocket_report;

CREATE OR REPLACE VIEW report.usage WITH (security_invoker = true) AS
SELECT u.call_id,
       CASE
           WHEN EXISTS (
               WITH RECURSIVE above(run_id, step) AS (
                   SELECT own.run_id, u.step
                   FROM hocket.run own
                   WHERE own.run_id = u.run_id AND own.tenant = u.tenant
                   UNION ALL
                   SELECT r.parent ->> 'run_id', r.parent ->> 'step'
                   FROM above
                   JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = u.tenant
                   WHERE r.parent IS NOT NULL
               )
               SELECT
               FROM above
               CROSS JOIN LATERAL generate_series(1, length(above.step)) AS mark(place)
               JOIN hocket.step race
                 ON race.run_id = above.run_id AND race.key = left(above.step, place - 1)
               WHERE substr(above.step, place, 1) = '~'
                 AND race.facts ? 'winner'
                 AND race.facts ->> 'winner' <> left(above.step, place)
                     || substring(substr(above.step, place + 1) FROM '^[A-Za-z0-9_-]+')
           ) THEN 'speculation'
           WHEN u.kind <> 'call' THEN u.kind
           WHEN EXISTS (
               SELECT
               FROM hocket.attempt a
               JOIN hocket.run own ON own.run_id = a.run_id AND own.tenant = u.tenant
               WHERE a.run_id = u.run_id AND a.key = u.step AND a.attempt = u.attempt
                 AND a.outcome IN ('failed', 'timed_out')
           ) THEN 'retry'
           ELSE 'call'
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

CREATE VIEW report.prices WITH (security_invoker = true) AS
SELECT tenant, model, backend, input_usd_per_mtok, output_usd_per_mtok, cached_usd_per_mtok,
       cache_write_usd_per_mtok, request_usd, currency, effective_from
FROM hocket.price;
COMMENT ON VIEW report.prices IS
    'The prices that calls of a tenant were booked at, by model and backend, each from its first call on. What a single call cost stands in its own row of report.usage, with its prices.';

CREATE VIEW report.unpriced_calls WITH (security_invoker = true) AS
SELECT tenant,
       pipeline,
       model,
       backend,
       (started_at AT TIME ZONE 'UTC')::date AS day,
       count(*)                              AS calls,
       sum(input_tokens)                     AS input_tokens,
       sum(output_tokens)                    AS output_tokens
FROM hocket.usage
WHERE unpriced AND (input_tokens > 0 OR output_tokens > 0)
GROUP BY tenant, pipeline, model, backend, (started_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.unpriced_calls IS
    'Calls that used tokens at a backend for which no price is configured: they are booked at 0, and every cost is too low by what they cost in truth.';

CREATE VIEW report.shared_cost WITH (security_invoker = true) AS
WITH held AS (
    SELECT backend,
           (from_at AT TIME ZONE 'UTC')::date                   AS day,
           sum(busy_ms)::numeric / 1000                         AS busy_s,
           sum(starting_ms + idle_ms + provisioned_ms)::numeric / 1000 AS idle_s,
           sum(cost_usd - wasted_usd)                           AS busy_usd,
           sum(wasted_usd)                                      AS idle_usd
    FROM hocket.warm_time
    GROUP BY backend, (from_at AT TIME ZONE 'UTC')::date
), used AS (
    SELECT backend,
           (started_at AT TIME ZONE 'UTC')::date AS day,
           tenant,
           pipeline,
           sum(latency_ms)::numeric              AS ms
    FROM hocket.usage
    WHERE backend IN (SELECT backend FROM held)
    GROUP BY backend, (started_at AT TIME ZONE 'UTC')::date, tenant, pipeline
), shared AS (
    SELECT held.*, used.tenant, used.pipeline,
           coalesce(used.ms / nullif(sum(used.ms) OVER (PARTITION BY held.backend, held.day), 0),
                    1.0 / count(*) OVER (PARTITION BY held.backend, held.day)) AS share
    FROM held
    LEFT JOIN used ON used.backend = held.backend AND used.day = held.day
)
SELECT tenant,
       pipeline,
       backend,
       day,
       share,
       busy_s * share           AS busy_s,
       idle_s * share           AS idle_s,
       busy_usd * share         AS busy_usd,
       idle_usd * share         AS idle_usd
FROM shared;
COMMENT ON VIEW report.shared_cost IS
    'What replicas that are started and stopped cost on each day (UTC), shared out to the pipelines that used their backend on that day, in proportion to the time of their calls. Days without a call have no tenant and no pipeline. For logins of all tenants: replicas are everybody''s.';

CREATE VIEW report.ledger WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date AS day, kind,
       count(*)                                AS entries,
       sum(input_tokens + output_tokens)       AS quantity,
       'tokens'                                AS unit,
       sum(cost_usd)                           AS cost_usd,
       0::numeric                              AS saved_usd,
       count(*) FILTER (WHERE unpriced)        AS unpriced,
       count(*) FILTER (WHERE estimated)       AS estimated,
       'USD'::text                             AS currency
FROM report.usage
GROUP BY tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date, kind
UNION ALL
SELECT r.tenant, r.pipeline, r.version, s.path, (s.finished_at AT TIME ZONE 'UTC')::date, 'tool',
       count(*), sum(s.took_ms)::numeric / 1000, 'seconds', NULL, 0, count(*), 0, 'USD'
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.role = 'leaf' AND s.type NOT IN ('llm', 'planning') AND s.took_ms IS NOT NULL AND s.finished_at IS NOT NULL
GROUP BY r.tenant, r.pipeline, r.version, s.path, (s.finished_at AT TIME ZONE 'UTC')::date
UNION ALL
SELECT tenant, pipeline, NULL, NULL, day, spent.kind, count(*), sum(spent.seconds), 'seconds', sum(spent.usd), 0, 0, 0,
       'USD'
FROM report.shared_cost
CROSS JOIN LATERAL (VALUES ('gpu_seconds', busy_s, busy_usd), ('warm_idle', idle_s, idle_usd))
           AS spent(kind, seconds, usd)
GROUP BY tenant, pipeline, day, spent.kind
UNION ALL
SELECT tenant, pipeline, version, node, day, 'cache_saving', hits, hits, 'steps', 0, saved_usd, 0, 0, 'USD'
FROM report.cache_savings
UNION ALL
SELECT r.tenant, r.pipeline, r.version, s.path, (s.finished_at AT TIME ZONE 'UTC')::date, 'replay_saving',
       count(*), count(*), 'steps', 0, coalesce(sum(spared.usd), 0), 0, 0, 'USD'
FROM hocket.step s
JOIN hocket.run r USING (run_id)
CROSS JOIN LATERAL (
    SELECT sum(u.cost_usd) AS usd
    FROM hocket.usage u
    WHERE u.run_id = s.facts #>> '{source,run_id}' AND u.step = s.facts #>> '{source,step}' AND u.tenant = r.tenant
) spared
WHERE s.facts ? 'source' AND s.facts #>> '{source,kind}' = 'run'
GROUP BY r.tenant, r.pipeline, r.version, s.path, (s.finished_at AT TIME ZONE 'UTC')::date;
COMMENT ON VIEW report.ledger IS
    'All that was spent and saved, by pipeline version, node, day (UTC) and kind: call, retry, speculation, cascade (model calls); tool (time of other steps, without a price); gpu_seconds and warm_idle (shares of replicas that are started and stopped, for logins of all tenants); cache_saving; replay_saving (steps that a repeated run took over).';

GRANT SELECT ON report.prices, report.unpriced_calls, report.shared_cost, report.ledger TO hocket_report;
