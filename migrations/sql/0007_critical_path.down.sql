DROP VIEW report.critical_path;
DROP VIEW report.run_critical_path;
ALTER TABLE hocket.run DROP COLUMN critical_path;
ALTER TABLE hocket.step DROP COLUMN took_ms, DROP COLUMN queued_at;
