DROP VIEW report.retention;
DROP INDEX hocket.warm_time_by_age, hocket.usage_by_age, hocket.run_child;
DROP TABLE hocket.retention;
