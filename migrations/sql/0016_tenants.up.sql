-- Collections and blobs belong to a tenant: another one's cannot be searched, filled or read by its name
-- or hash. What is there already becomes the tenant `default`'s. (While releases run beside each other, the
-- older one's `hocket index add` fails; its services go on.)

ALTER TABLE retrieval.collection ADD COLUMN tenant text NOT NULL DEFAULT 'default'
    CHECK (tenant <> '');
ALTER TABLE retrieval.collection DROP CONSTRAINT collection_name_key;
ALTER TABLE retrieval.collection ADD CONSTRAINT collection_tenant_name_key UNIQUE (tenant, name);
COMMENT ON COLUMN retrieval.collection.tenant IS 'Whose collection it is; no other tenant sees it.';

CREATE TABLE hocket.tenant_blob (
    tenant     text        NOT NULL CHECK (tenant <> ''),
    hash       text        NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    data       bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, hash)
);
ALTER TABLE hocket.tenant_blob ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE hocket.tenant_blob IS
    'Large values of a tenant by the SHA-256 of their bytes.';
COMMENT ON TABLE hocket.blob IS
    'Large values from before they belonged to tenants; read for the tenant `default` only.';
