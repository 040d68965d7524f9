DROP VIEW report.warm_by_model_day;
DROP VIEW report.warm_time;
DROP TABLE hocket.warm_time;
