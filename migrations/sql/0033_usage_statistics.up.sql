-- Postgres learns how few groups reports make of many calls, and adds them up in memory where it sorted all rows.

CREATE STATISTICS hocket.usage_day ON ((started_at AT TIME ZONE 'UTC')::date) FROM hocket.usage;
CREATE STATISTICS hocket.usage_groups (ndistinct)
    ON tenant, pipeline, version, node, ((started_at AT TIME ZONE 'UTC')::date), kind FROM hocket.usage;
CREATE STATISTICS hocket.usage_models (ndistinct)
    ON tenant, model, backend, ((started_at AT TIME ZONE 'UTC')::date) FROM hocket.usage;
ANALYZE hocket.usage;

-- calls of runs that are noted are kept apart: the kind of all others is a column
CREATE OR REPLACE VIEW report.ledger WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, kind,
       sum(entries)::bigint                    AS entries,
       sum(tokens)                             AS quantity,
       'tokens'                                AS unit,
       sum(cost_usd)                           AS cost_usd,
       0::numeric                              AS saved_usd,
       sum(unpriced)::bigint                   AS unpriced,
       sum(estimated)::bigint                  AS estimated,
       'USD'::text                             AS currency
FROM (
    SELECT tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date AS day, kind,
           count(*)                            AS entries,
           sum(input_tokens + output_tokens)   AS tokens,
           sum(cost_usd)                       AS cost_usd,
           count(*) FILTER (WHERE unpriced)    AS unpriced,
           count(*) FILTER (WHERE estimated)   AS estimated
    FROM hocket.usage
    WHERE run_id IS NULL OR run_id NOT IN (SELECT run_id FROM hocket.kind_change)
    GROUP BY tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date, kind
    UNION ALL
    SELECT tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date AS day, kind,
           count(*)                            AS entries,
           sum(input_tokens + output_tokens)   AS tokens,
           sum(cost_usd)                       AS cost_usd,
           count(*) FILTER (WHERE unpriced)    AS unpriced,
           count(*) FILTER (WHERE estimated)   AS estimated
    FROM report.usage
    WHERE run_id IN (SELECT run_id FROM hocket.kind_change)
    GROUP BY tenant, pipeline, version, node, (started_at AT TIME ZONE 'UTC')::date, kind
) calls
GROUP BY tenant, pipeline, version, node, day, kind
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
