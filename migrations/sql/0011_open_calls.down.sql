DROP VIEW report.lost_calls;
DROP TABLE hocket.open_call;
