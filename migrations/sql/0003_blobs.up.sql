CREATE TABLE hocket.blob (
    hash       text        PRIMARY KEY CHECK (hash ~ '^[0-9a-f]{64}$'),
    data       bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE hocket.blob ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE hocket.blob IS 'Large values by the SHA-256 of their bytes.';
