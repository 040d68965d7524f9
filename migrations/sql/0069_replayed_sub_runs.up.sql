-- What a repeated run saved counts charges of tools, and all that sub-runs cost which it took over.

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
SELECT tenant, pipeline, version, path, day, 'replay_saving', sum(steps)::bigint, sum(steps)::bigint, 'steps', 0,
       coalesce(sum(usd), 0), 0
FROM (
    SELECT s.tenant, s.pipeline, s.version, s.path, s.day, 1 AS steps, spared.usd
    FROM hocket.live_step s
    CROSS JOIN LATERAL (
        SELECT sum(part.usd) AS usd
        FROM (SELECT u.cost_usd AS usd
              FROM hocket.usage u
              WHERE u.run_id = s.facts #>> '{source,run_id}' AND u.step = s.facts #>> '{source,step}' AND u.tenant = s.tenant
              UNION ALL
              SELECT (made.facts ->> 'charged_usd')::numeric
              FROM hocket.step made
              JOIN hocket.run r USING (run_id)
              WHERE made.run_id = s.facts #>> '{source,run_id}' AND made.key = s.facts #>> '{source,step}'
                AND made.facts ? 'charged_usd' AND r.tenant = s.tenant
              UNION ALL
              SELECT k.cost_usd
              FROM hocket.kept_charge k
              WHERE k.run_id = s.facts #>> '{source,run_id}' AND k.key = s.facts #>> '{source,step}' AND k.tenant = s.tenant
             ) part
    ) spared
    WHERE s.facts ? 'source' AND s.facts #>> '{source,kind}' = 'run'
    UNION ALL
    -- the sub-runs of a run are read once, and not for each of its steps
    SELECT taken.tenant, taken.pipeline, taken.version, taken.path, taken.day, 0, spared.usd
    FROM (SELECT tenant, pipeline, version, path, day, facts #>> '{source,run_id}' AS run_id,
                 array_agg(facts #>> '{source,step}') AS steps
          FROM hocket.live_step
          WHERE role = 'subrun' AND facts ? 'source' AND facts #>> '{source,kind}' = 'run'
          GROUP BY tenant, pipeline, version, path, day, facts #>> '{source,run_id}') taken
    CROSS JOIN LATERAL (
        WITH RECURSIVE below(run_id) AS (
            SELECT child.run_id
            FROM (SELECT r.run_id, r.tenant, r.parent ->> 'step' AS step
                  FROM hocket.run r
                  WHERE r.parent ->> 'run_id' = taken.run_id AND r.parent IS NOT NULL OFFSET 0) child
            JOIN unnest(taken.steps) AS wanted(step) USING (step)
            WHERE child.tenant = taken.tenant
            UNION ALL
            SELECT child.run_id
            FROM below
            CROSS JOIN LATERAL (SELECT r.run_id, r.tenant
                                FROM hocket.run r
                                WHERE r.parent ->> 'run_id' = below.run_id AND r.parent IS NOT NULL OFFSET 0) child
            WHERE child.tenant = taken.tenant
        )
        SELECT sum(called.usd + charged.usd) AS usd
        FROM below
        CROSS JOIN LATERAL (SELECT coalesce(sum(u.cost_usd), 0) AS usd
                            FROM (SELECT tenant, cost_usd FROM hocket.usage WHERE run_id = below.run_id OFFSET 0) u
                            WHERE u.tenant = taken.tenant) called
        CROSS JOIN LATERAL (SELECT coalesce(sum((s.facts ->> 'charged_usd')::numeric), 0) AS usd
                            FROM hocket.step s
                            WHERE s.run_id = below.run_id AND s.facts ? 'charged_usd') charged
    ) spared
) replayed
GROUP BY tenant, pipeline, version, path, day;
