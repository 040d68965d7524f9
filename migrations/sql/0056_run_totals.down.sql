DROP INDEX hocket.run_hours_by_pipeline;
DROP TRIGGER totals_of_new ON hocket.rollup_run_hours;
DROP TRIGGER totals_of_rest ON hocket.rollup_run_hours;
DROP FUNCTION hocket.add_run_totals();
DROP FUNCTION hocket.renew_run_totals();
DROP TABLE hocket.rollup_run_totals;
