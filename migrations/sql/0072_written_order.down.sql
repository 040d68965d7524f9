ALTER TABLE hocket.pipeline DROP COLUMN document;
