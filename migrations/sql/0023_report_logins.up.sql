-- Logins for reports: views run with the reader's rights, rows are their tenant's, and the tenant is that of
-- the login (session_user), which nobody can set. The schema hocket cannot be named by them.

CREATE TABLE hocket.report_login (
    login      text        PRIMARY KEY,
    tenant     text        NOT NULL CHECK (tenant <> ''),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE hocket.report_login IS
    'Whose rows a login for reports reads; `hocket report-login` writes it. Logins of all tenants have policies of their own.';

CREATE FUNCTION hocket.report_tenant() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$ SELECT tenant FROM hocket.report_login WHERE login = session_user $$;
COMMENT ON FUNCTION hocket.report_tenant() IS 'The tenant of the login for reports that asks; null for others.';
REVOKE ALL ON FUNCTION hocket.report_tenant() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION hocket.report_tenant() TO hocket_report;

ALTER TABLE hocket.run ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.step ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.attempt ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.usage ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.open_call ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.warm_time ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.retention ENABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.report_login ENABLE ROW LEVEL SECURITY;

CREATE POLICY report_tenant ON hocket.run FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant()));
CREATE POLICY report_tenant ON hocket.usage FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant()));
CREATE POLICY report_tenant ON hocket.open_call FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant()));
-- those of the runs that may be read
CREATE POLICY report_run ON hocket.step FOR SELECT TO hocket_report
    USING (EXISTS (SELECT FROM hocket.run r WHERE r.run_id = step.run_id));
CREATE POLICY report_run ON hocket.attempt FOR SELECT TO hocket_report
    USING (EXISTS (SELECT FROM hocket.run r WHERE r.run_id = attempt.run_id));

GRANT SELECT (run_id, tenant, pipeline, version, status, accepted_at, deadline_at, finished_at, parent,
              critical_path) ON hocket.run TO hocket_report;
GRANT SELECT (run_id, key, path, finished_at, facts) ON hocket.step TO hocket_report;
GRANT SELECT (run_id, key, attempt, outcome) ON hocket.attempt TO hocket_report;
GRANT SELECT (call_id, kind, tenant, pipeline, version, run_id, node, step, attempt, model, backend,
              replica, status, error_code, input_tokens, output_tokens, cached_tokens, cost_usd, started_at,
              latency_ms, experiment, arm, estimated, amended, recorded_at) ON hocket.usage TO hocket_report;
GRANT SELECT ON hocket.open_call, hocket.warm_time, hocket.retention TO hocket_report;

ALTER VIEW report.usage SET (security_invoker = true);
ALTER VIEW report.cost_by_pipeline_day SET (security_invoker = true);
ALTER VIEW report.cost_by_run SET (security_invoker = true);
ALTER VIEW report.cost_by_node SET (security_invoker = true);
ALTER VIEW report.cost_by_kind SET (security_invoker = true);
ALTER VIEW report.cache_savings SET (security_invoker = true);
ALTER VIEW report.critical_path SET (security_invoker = true);
ALTER VIEW report.run_critical_path SET (security_invoker = true);
ALTER VIEW report.experiments SET (security_invoker = true);
ALTER VIEW report.lost_calls SET (security_invoker = true);
ALTER VIEW report.slo_attainment SET (security_invoker = true);
ALTER VIEW report.warm_time SET (security_invoker = true);
ALTER VIEW report.warm_by_model_day SET (security_invoker = true);
ALTER VIEW report.retention SET (security_invoker = true);
