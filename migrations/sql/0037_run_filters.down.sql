DROP INDEX hocket.run_by_error;
DROP INDEX hocket.run_by_status;
DROP INDEX hocket.run_by_time;
CREATE INDEX run_by_time ON hocket.run (tenant, accepted_at DESC, run_id DESC);
