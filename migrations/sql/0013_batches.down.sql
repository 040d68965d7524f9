ALTER TABLE hocket.partition DROP COLUMN batch;
