-- Where owners change within seconds, none sees an end settle: what one knows of that goes to the next.
ALTER TABLE hocket.partition
    ADD COLUMN acked_to  timestamptz NOT NULL DEFAULT 'epoch',
    ADD COLUMN acked_at  timestamptz NOT NULL DEFAULT 'epoch',
    ADD COLUMN marked_in bigint      NOT NULL DEFAULT 0;
COMMENT ON COLUMN hocket.partition.acked_to IS
    'The ends of runs that finished before this time were acknowledged by NATS (the epoch: none is known to be).';
COMMENT ON COLUMN hocket.partition.acked_at IS 'By when they were.';
COMMENT ON COLUMN hocket.partition.marked_in IS
    'The epoch whose owner wrote that; the next one goes by it, later ones do not.';
