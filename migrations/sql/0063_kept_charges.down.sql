-- What deleted steps charged is lost, and days are rolled up again without it.

CREATE OR REPLACE VIEW hocket.live_charge WITH (security_invoker = true) AS
SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path AS node, r.labels,
       (s.facts ->> 'charged_usd')::numeric AS cost_usd, (s.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.step s
JOIN hocket.run r USING (run_id)
WHERE s.facts ? 'charged_usd' AND s.role = 'leaf' AND s.type NOT IN ('llm', 'planning', 'agent')
  AND s.finished_at >= (SELECT open_from FROM hocket.rollup_state)
  AND s.finished_at < (SELECT ends FROM hocket.rollup_state)
UNION ALL
SELECT s.tenant, s.pipeline, s.version, s.run_id, s.node, s.labels, s.cost_usd, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT r.tenant, r.pipeline, r.version, s.run_id, s.path AS node, r.labels,
           (s.facts ->> 'charged_usd')::numeric AS cost_usd
    FROM hocket.step s
    JOIN hocket.run r USING (run_id)
    WHERE s.facts ? 'charged_usd' AND s.role = 'leaf' AND s.type NOT IN ('llm', 'planning', 'agent')
      AND r.tenant = d.tenant AND s.finished_at >= d.from_at AND s.finished_at < d.to_at
    OFFSET 0
) s;

CREATE OR REPLACE VIEW hocket.live_charge_of_run WITH (security_invoker = true) AS
SELECT s.run_id, sum((s.facts ->> 'charged_usd')::numeric) AS cost_usd
FROM hocket.step s
WHERE s.facts ? 'charged_usd' AND s.role = 'leaf' AND s.type NOT IN ('llm', 'planning', 'agent')
  AND s.finished_at >= (SELECT least(open_from, (SELECT min(from_at) FROM hocket.live_day)) FROM hocket.rollup_state)
GROUP BY s.run_id;

CREATE OR REPLACE VIEW hocket.live_cost_by_other_run WITH (security_invoker = true) AS
SELECT named.tenant, u.pipeline, u.version, named.run_id,
       CASE WHEN named.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END AS status,
       u.started_at AS accepted_at, NULL::timestamptz AS finished_at, NULL::numeric AS duration_ms,
       NULL::boolean AS met_deadline, u.calls, u.input_tokens, u.output_tokens, u.cost_usd, named.day
FROM (SELECT DISTINCT tenant, run_id, day
      FROM hocket.live_usage
      WHERE run_id IS NOT NULL
      OFFSET 0) named
LEFT JOIN LATERAL (SELECT true AS is_there FROM hocket.run r
                   WHERE r.run_id = named.run_id AND r.tenant = named.tenant OFFSET 0) run ON true
CROSS JOIN LATERAL (
    SELECT max(c.pipeline) AS pipeline, max(c.version) AS version, min(c.started_at) AS started_at, count(*) AS calls,
           sum(c.input_tokens) AS input_tokens, sum(c.output_tokens) AS output_tokens, sum(c.cost_usd) AS cost_usd
    FROM hocket.usage c
    WHERE c.run_id = named.run_id AND c.tenant = named.tenant
      AND c.started_at >= named.day::timestamp AT TIME ZONE 'UTC'
      AND c.started_at < (named.day + 1)::timestamp AT TIME ZONE 'UTC'
    OFFSET 0) u
WHERE run.is_there IS NULL;

CREATE OR REPLACE VIEW hocket.live_other_entries WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, path AS node, day, 'tool' AS kind, count(*) AS entries,
       sum(took_ms::numeric) / 1000 AS quantity, 'seconds' AS unit, sum((facts ->> 'charged_usd')::numeric) AS cost_usd,
       0::numeric AS saved_usd, count(*) FILTER (WHERE NOT coalesce(facts ? 'charged_usd', false)) AS unpriced
FROM hocket.live_step
WHERE role = 'leaf' AND type NOT IN ('llm', 'planning', 'agent') AND took_ms IS NOT NULL
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

INSERT INTO hocket.dirty_day (tenant, day)
SELECT DISTINCT tenant, hocket.day_of(finished_at) FROM hocket.kept_charge WHERE finished_at < hocket.today();
DROP VIEW hocket.live_kept_charge;
DROP TABLE hocket.kept_charge;
DROP FUNCTION hocket.note_days_of_charges();

COMMENT ON VIEW report.cost_by_run IS
    'What each run cost, with what its tools charged. met_deadline: it gave its result in time (null while it runs). Status `external`: calls of the HTTP door name the run, and Hocket did not run it; `deleted`: the run is not kept any more, its calls are. Both have the start of their first call as accepted_at.';
