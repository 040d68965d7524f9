ALTER TABLE hocket.partition DROP COLUMN acked_to, DROP COLUMN acked_at, DROP COLUMN marked_in;
