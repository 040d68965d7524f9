CREATE INDEX run_recent ON hocket.run (tenant, pipeline, accepted_at DESC);
DROP INDEX hocket.run_of_pipeline;
DROP TABLE hocket.rollup_error_hours;
DROP VIEW hocket.live_error_hours;
