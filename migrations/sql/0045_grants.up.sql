-- What the pipelines of tenants may use.

CREATE SEQUENCE hocket.tenant_grants_change;

CREATE TABLE hocket.tenant_grants (
    tenant     text        PRIMARY KEY,
    grants     jsonb       NOT NULL,
    revision   bigint      NOT NULL DEFAULT 1,
    change     bigint      NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX tenant_grants_change_idx ON hocket.tenant_grants (change);

COMMENT ON TABLE hocket.tenant_grants IS 'What the pipelines of a tenant may use; a tenant without a row may use everything.';
COMMENT ON COLUMN hocket.tenant_grants.grants IS 'A list of names for each kind of resource; a kind without a list is not restricted.';
COMMENT ON COLUMN hocket.tenant_grants.revision IS 'Counts the changes of the row; the ETag of REST.';
COMMENT ON COLUMN hocket.tenant_grants.change IS 'Numbers the changes of all rows, by which processes read what is new.';
