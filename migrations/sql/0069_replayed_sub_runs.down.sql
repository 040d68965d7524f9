CREATE OR REPLACE VIEW hocket.live_other_entries WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, node, day, 'tool' AS kind, count(*) AS entries,
       coalesce(sum(took_ms), 0) / 1000 AS quantity, 'seconds' AS unit, sum(charged_usd) AS cost_usd,
       0::numeric AS saved_usd, count(*) FILTER (WHERE charged_usd IS NULL) AS unpriced
FROM (SELECT tenant, pipeline, version, path AS node, day, took_ms::numeric AS took_ms,
             (facts ->> 'charged_usd')::numeric AS charged_usd
      FROM hocket.live_step
      WHERE role = 'leaf' AND type NOT IN ('llm', 'planning', 'agent')
        AND (took_ms IS NOT NULL OR facts ? 'charged_usd')
      UNION ALL
      SELECT tenant, pipeline, version, node, day, took_ms::numeric, cost_usd
      FROM hocket.live_kept_charge) steps
GROUP BY tenant, pipeline, version, node, day
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
