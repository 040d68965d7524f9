-- Collections of other tenants than `default` get the tenant into their name: names are unique again.

UPDATE retrieval.collection SET name = tenant || '/' || name WHERE tenant <> 'default';
ALTER TABLE retrieval.collection DROP CONSTRAINT collection_tenant_name_key;
ALTER TABLE retrieval.collection ADD CONSTRAINT collection_name_key UNIQUE (name);
ALTER TABLE retrieval.collection DROP COLUMN tenant;

INSERT INTO hocket.blob (hash, data, created_at)
SELECT DISTINCT ON (hash) hash, data, created_at FROM hocket.tenant_blob
ON CONFLICT (hash) DO NOTHING;
DROP TABLE hocket.tenant_blob;
COMMENT ON TABLE hocket.blob IS 'Large values by the SHA-256 of their bytes.';
