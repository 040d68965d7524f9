-- What tools charged stays when retention deletes the steps that have it: reports lost it, and budgets counted it no more.

CREATE TABLE hocket.kept_charge (
    run_id      text        NOT NULL,
    key         text        NOT NULL,
    tenant      text        NOT NULL,
    pipeline    text        NOT NULL,
    version     integer     NOT NULL,
    node        text        NOT NULL,
    labels      jsonb,
    cost_usd    numeric     NOT NULL,
    took_ms     double precision,
    finished_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, key)
);
CREATE INDEX kept_charge_of_tenant ON hocket.kept_charge (tenant, finished_at);
CREATE INDEX kept_charge_by_time ON hocket.kept_charge (finished_at);
COMMENT ON TABLE hocket.kept_charge IS
    'What steps charged that call no model, of steps that retention has deleted; kept for as long as calls are.';

-- a charge comes here from its step and changes no report; one that goes does
CREATE FUNCTION hocket.note_days_of_charges() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT tenant, hocket.day_of(finished_at) FROM changed WHERE finished_at < hocket.today();
    RETURN NULL;
END
$$;
CREATE TRIGGER dirty_days_gone AFTER DELETE ON hocket.kept_charge REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_charges();

ALTER TABLE hocket.kept_charge ENABLE ROW LEVEL SECURITY;
CREATE POLICY report_tenant ON hocket.kept_charge FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant()));
DO $$
DECLARE login record;
BEGIN
    FOR login IN SELECT policyname, roles[1] AS name FROM pg_policies
                 WHERE schemaname = 'hocket' AND tablename = 'usage' AND policyname LIKE 'report\_all\_%' LOOP
        EXECUTE format('CREATE POLICY %I ON hocket.kept_charge FOR SELECT TO %I USING (true)',
                       login.policyname, login.name);
    END LOOP;
END
$$;

CREATE VIEW hocket.live_kept_charge WITH (security_invoker = true) AS
SELECT k.*, (k.finished_at AT TIME ZONE 'UTC')::date AS day
FROM hocket.kept_charge k
WHERE k.finished_at >= (SELECT open_from FROM hocket.rollup_state)
  AND k.finished_at < (SELECT ends FROM hocket.rollup_state)
UNION ALL
SELECT k.*, d.day
FROM hocket.live_day d
CROSS JOIN LATERAL (
    SELECT * FROM hocket.kept_charge k
    WHERE k.tenant = d.tenant AND k.finished_at >= d.from_at AND k.finished_at < d.to_at
    OFFSET 0
) k;
COMMENT ON VIEW hocket.live_kept_charge IS
    'What deleted steps charged that ended on open and on dirty days.';
GRANT SELECT ON hocket.kept_charge, hocket.live_kept_charge TO hocket_report;

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
) s
UNION ALL
SELECT tenant, pipeline, version, run_id, node, labels, cost_usd, day FROM hocket.live_kept_charge;

-- while a run is deleted piece by piece, some of its steps are gone
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

CREATE OR REPLACE VIEW hocket.live_cost_by_other_run WITH (security_invoker = true) AS
SELECT named.tenant, u.pipeline, u.version, named.run_id,
       CASE WHEN named.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END AS status,
       u.started_at AS accepted_at, NULL::timestamptz AS finished_at, NULL::numeric AS duration_ms,
       NULL::boolean AS met_deadline, u.calls, u.input_tokens, u.output_tokens, u.cost_usd, named.day
FROM (SELECT tenant, run_id, day FROM hocket.live_usage WHERE run_id IS NOT NULL
      UNION
      SELECT tenant, run_id, day FROM hocket.live_kept_charge
      OFFSET 0) named
LEFT JOIN LATERAL (SELECT true AS is_there FROM hocket.run r
                   WHERE r.run_id = named.run_id AND r.tenant = named.tenant OFFSET 0) run ON true
CROSS JOIN LATERAL (
    SELECT max(c.pipeline) AS pipeline, max(c.version) AS version, min(c.at) AS started_at, sum(c.calls)::bigint AS calls,
           sum(c.input_tokens) AS input_tokens, sum(c.output_tokens) AS output_tokens, sum(c.cost_usd) AS cost_usd
    FROM (SELECT pipeline, version, started_at AS at, 1 AS calls, input_tokens, output_tokens, cost_usd
          FROM hocket.usage
          WHERE run_id = named.run_id AND tenant = named.tenant
            AND started_at >= named.day::timestamp AT TIME ZONE 'UTC'
            AND started_at < (named.day + 1)::timestamp AT TIME ZONE 'UTC'
          UNION ALL
          SELECT pipeline, version, finished_at, 0, 0, 0, cost_usd
          FROM hocket.kept_charge
          WHERE run_id = named.run_id AND tenant = named.tenant
            AND finished_at >= named.day::timestamp AT TIME ZONE 'UTC'
            AND finished_at < (named.day + 1)::timestamp AT TIME ZONE 'UTC') c
    OFFSET 0) u
WHERE run.is_there IS NULL;

-- a step that charged and was then cancelled has no time, and counts all the same
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

COMMENT ON VIEW report.cost_by_run IS
    'What each run cost, with what its tools charged. met_deadline: it gave its result in time (null while it runs). Status `external`: calls of the HTTP door name the run, and Hocket did not run it; `deleted`: the run is not kept any more, what it cost is. Both have the start of their first call as accepted_at, or the end of their first charge.';
