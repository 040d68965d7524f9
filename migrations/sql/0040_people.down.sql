DELETE FROM hocket.api_key WHERE subject IS NOT NULL;

DROP INDEX hocket.api_key_subject_idx;
ALTER TABLE hocket.api_key
    DROP CONSTRAINT api_key_person,
    DROP COLUMN groups,
    DROP COLUMN subject;
