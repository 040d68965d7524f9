-- How many runs were accepted in each hour, by pipeline, version and status: the console's chart over a month of five
-- million runs read them all. Rolled up by day like the other reports (docs/decisions/0018).

CREATE VIEW hocket.live_run_hours WITH (security_invoker = true) AS
SELECT tenant, day, date_trunc('hour', accepted_at, 'UTC') AS hour, pipeline, version, status, count(*) AS runs
FROM hocket.live_run
GROUP BY tenant, day, date_trunc('hour', accepted_at, 'UTC'), pipeline, version, status;

CREATE TABLE hocket.rollup_run_hours AS SELECT * FROM hocket.live_run_hours WITH NO DATA;
CREATE INDEX ON hocket.rollup_run_hours (tenant, day);
COMMENT ON TABLE hocket.rollup_run_hours IS
    'What hocket.live_run_hours said of each day when it was over, or changed last.';
CREATE VIEW hocket.all_run_hours WITH (security_invoker = true) AS
SELECT * FROM hocket.rollup_run_hours r
WHERE NOT EXISTS (SELECT FROM hocket.dirty_day d WHERE d.tenant = r.tenant AND d.day = r.day)
UNION ALL
SELECT * FROM hocket.live_run_hours;
COMMENT ON VIEW hocket.all_run_hours IS 'The rollup of clean days, and what the others come to.';
CREATE VIEW report.runs_by_hour WITH (security_invoker = true) AS
SELECT tenant, pipeline, version, status, day, hour, runs FROM hocket.all_run_hours;
COMMENT ON VIEW report.runs_by_hour IS
    'How many runs of each pipeline version were accepted in each hour (UTC), by what became of them.';
COMMENT ON COLUMN report.runs_by_hour.tenant IS 'Whose runs.';
COMMENT ON COLUMN report.runs_by_hour.pipeline IS 'The pipeline.';
COMMENT ON COLUMN report.runs_by_hour.version IS 'Its version.';
COMMENT ON COLUMN report.runs_by_hour.status IS 'What became of them by now; running: they go on.';
COMMENT ON COLUMN report.runs_by_hour.day IS 'The day (UTC) of the hour.';
COMMENT ON COLUMN report.runs_by_hour.hour IS 'When the hour begins.';
COMMENT ON COLUMN report.runs_by_hour.runs IS 'How many were accepted in it.';

INSERT INTO hocket.rollup_run_hours
SELECT tenant, hocket.day_of(accepted_at), date_trunc('hour', accepted_at, 'UTC'), pipeline, version, status, count(*)
FROM hocket.run
WHERE accepted_at < hocket.open_from()
GROUP BY tenant, hocket.day_of(accepted_at), date_trunc('hour', accepted_at, 'UTC'), pipeline, version, status;

ALTER TABLE hocket.rollup_run_hours ENABLE ROW LEVEL SECURITY;
CREATE POLICY report_tenant ON hocket.rollup_run_hours FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant()));
DO $$
DECLARE login record;
BEGIN
    FOR login IN SELECT policyname, roles[1] AS name FROM pg_policies
                 WHERE schemaname = 'hocket' AND tablename = 'usage' AND policyname LIKE 'report\_all\_%' LOOP
        EXECUTE format('CREATE POLICY %I ON hocket.rollup_run_hours FOR SELECT TO %I USING (true)',
                       login.policyname, login.name);
    END LOOP;
END
$$;
GRANT SELECT ON hocket.rollup_run_hours, hocket.live_run_hours, hocket.all_run_hours, report.runs_by_hour TO hocket_report;
ANALYZE hocket.rollup_run_hours;

-- The runs that repeat another one, for its page.
CREATE INDEX run_repeat ON hocket.run ((facts #>> '{origin,run_id}')) WHERE facts ? 'origin';
