DROP INDEX hocket.run_by_time;
DROP TABLE hocket.bulk_operation;
