SET LOCAL lock_timeout = '5s';

ALTER TABLE hocket.api_key DROP COLUMN pools;
