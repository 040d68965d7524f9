-- A batch that was given up for lost may still reach the tables, after later ones: it is known by its number.
ALTER TABLE hocket.partition ADD COLUMN batch bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN hocket.partition.batch IS
    'The number of the last batch written under this epoch; an earlier one that comes late is refused.';
