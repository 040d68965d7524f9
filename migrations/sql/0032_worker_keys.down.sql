ALTER TABLE hocket.api_key DROP COLUMN pools;
