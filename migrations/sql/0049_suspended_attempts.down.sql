-- a release that suspends no steps hands them out again on the next takeover, and their handlers wait in a worker
UPDATE hocket.step SET state = 'dispatched', wake_at = NULL WHERE state = 'waiting' AND role = 'leaf';
DELETE FROM hocket.attempt WHERE outcome = 'suspended';
ALTER TABLE hocket.attempt DROP CONSTRAINT attempt_outcome_check;
ALTER TABLE hocket.attempt ADD CONSTRAINT attempt_outcome_check CHECK (outcome IN
    ('failed', 'timed_out', 'cancelled', 'late'));
