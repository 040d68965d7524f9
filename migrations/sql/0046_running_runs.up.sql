-- The runs of a tenant that go on, the latest first. Without it, Postgres takes them for spread evenly over
-- all runs, and reads its way back by `accepted_at` through those of every tenant: 3.2 s of 5,000,000.
CREATE INDEX run_running ON hocket.run (tenant, accepted_at DESC, run_id DESC) WHERE status = 'running';
