-- Several coordinators share the partitions: what they must agree on, and what one must know of another.
CREATE TABLE hocket.installation (
    only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    partitions integer     NOT NULL CHECK (partitions > 0),
    made_at    timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE hocket.installation IS
    'What is fixed for the life of an installation: into how many partitions its runs are sharded.';
INSERT INTO hocket.installation (partitions)
SELECT count(*) FROM hocket.partition HAVING count(*) > 0;

ALTER TABLE hocket.partition ADD COLUMN told_at timestamptz NOT NULL DEFAULT 'epoch';
COMMENT ON COLUMN hocket.partition.told_at IS
    'The ends of runs that finished before this time were told; a new owner tells the later ones again.';
UPDATE hocket.partition SET told_at = now() - interval '2 minutes';
