-- Keys of workers: the pools whose steps they take.

ALTER TABLE hocket.api_key ADD COLUMN pools text[];

COMMENT ON COLUMN hocket.api_key.pools IS 'Of a worker: node types, each with @ and the queue where there is one.';
