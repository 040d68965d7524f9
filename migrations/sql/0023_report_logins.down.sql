-- Logins that were made stay; they read all tenants' rows again, as every member of hocket_report did. Their
-- policies for all tenants go with those of the tables.
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT schemaname, tablename, policyname FROM pg_policies
                 WHERE schemaname = 'hocket' AND policyname LIKE 'report_%' LOOP
        EXECUTE format('DROP POLICY %I ON %I.%I', found.policyname, found.schemaname, found.tablename);
    END LOOP;
    FOR found IN SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'report' AND c.relkind = 'v' LOOP
        EXECUTE format('ALTER VIEW report.%I RESET (security_invoker)', found.relname);
    END LOOP;
END
$$;
ALTER TABLE hocket.run DISABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.step DISABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.attempt DISABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.usage DISABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.open_call DISABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.warm_time DISABLE ROW LEVEL SECURITY;
ALTER TABLE hocket.retention DISABLE ROW LEVEL SECURITY;
REVOKE SELECT (run_id, tenant, pipeline, version, status, accepted_at, deadline_at, finished_at, parent,
               critical_path) ON hocket.run FROM hocket_report;
REVOKE SELECT (run_id, key, path, finished_at, facts) ON hocket.step FROM hocket_report;
REVOKE SELECT (run_id, key, attempt, outcome) ON hocket.attempt FROM hocket_report;
REVOKE SELECT (call_id, kind, tenant, pipeline, version, run_id, node, step, attempt, model, backend,
               replica, status, error_code, input_tokens, output_tokens, cached_tokens, cost_usd, started_at,
               latency_ms, experiment, arm, estimated, amended, recorded_at) ON hocket.usage FROM hocket_report;
REVOKE SELECT ON hocket.open_call, hocket.warm_time, hocket.retention FROM hocket_report;
DROP FUNCTION hocket.report_tenant();
DROP TABLE hocket.report_login;
