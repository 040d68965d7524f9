-- Lists of runs, and the chart above them, over millions of runs. A run's status changes with its end,
-- which is no update within a page anyway, so that the status beside the time costs no more of those.
DROP INDEX hocket.run_by_time;
CREATE INDEX run_by_time ON hocket.run (tenant, accepted_at DESC, run_id DESC) INCLUDE (status);
-- The runs that somebody looks for: few, so that the others cost nothing.
CREATE INDEX run_by_status ON hocket.run (tenant, status, accepted_at DESC, run_id DESC)
    WHERE status NOT IN ('running', 'succeeded');
CREATE INDEX run_by_error ON hocket.run (tenant, (error ->> 'code'), accepted_at DESC, run_id DESC)
    WHERE error IS NOT NULL;
