-- Runs that wait for a person or a late time leave the coordinator's memory; a takeover does not load them.
ALTER TABLE hocket.run ADD COLUMN parked_until timestamptz;
COMMENT ON COLUMN hocket.run.parked_until IS
    'Set while the run rests outside of memory: until when, unless an event wakes it before.';
CREATE INDEX run_in_memory ON hocket.run (partition) WHERE finished_at IS NULL AND parked_until IS NULL;
CREATE INDEX run_parked ON hocket.run (partition, parked_until) WHERE parked_until IS NOT NULL;
