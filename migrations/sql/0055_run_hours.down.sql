DROP INDEX hocket.run_repeat;
DROP VIEW report.runs_by_hour;
DROP VIEW hocket.all_run_hours;
DROP TABLE hocket.rollup_run_hours;
DROP VIEW hocket.live_run_hours;
