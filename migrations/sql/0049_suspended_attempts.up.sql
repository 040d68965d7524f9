-- An attempt whose handler waits is suspended: it ended without a result, and did not fail.
ALTER TABLE hocket.attempt DROP CONSTRAINT attempt_outcome_check;
ALTER TABLE hocket.attempt ADD CONSTRAINT attempt_outcome_check CHECK (outcome IN
    ('failed', 'timed_out', 'cancelled', 'late', 'suspended')) NOT VALID;
ALTER TABLE hocket.attempt VALIDATE CONSTRAINT attempt_outcome_check;
