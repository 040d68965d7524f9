CREATE OR REPLACE VIEW hocket.live_other_entries WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, path AS node, day, 'tool' AS kind, count(*) AS entries,
       sum(took_ms::numeric) / 1000 AS quantity, 'seconds' AS unit, NULL::numeric AS cost_usd, 0::numeric AS saved_usd,
       count(*) AS unpriced
FROM hocket.live_step
WHERE role = 'leaf' AND type NOT IN ('llm', 'planning') AND took_ms IS NOT NULL
GROUP BY tenant, pipeline, version, path, day
UNION ALL
SELECT s.tenant, s.pipeline, s.version, s.path, s.day, 'replay_saving', count(*), count(*), 'steps', 0,
       coalesce(sum(spared.usd), 0), 0
FROM hocket.live_step s
CROSS JOIN LATERAL (
    SELECT sum(u.cost_usd) AS usd
    FROM hocket.usage u
    WHERE u.run_id = s.facts #>> '{source,run_id}' AND u.step = s.facts #>> '{source,step}' AND u.tenant = s.tenant
) spared
WHERE s.facts ? 'source' AND s.facts #>> '{source,kind}' = 'run'
GROUP BY s.tenant, s.pipeline, s.version, s.path, s.day;
