-- Keys, and the audit of what their bearers changed.

CREATE SEQUENCE hocket.api_key_change;

CREATE TABLE hocket.api_key (
    key_id          text PRIMARY KEY CHECK (key_id ~ '^[0-9a-f]{12}$'),
    name            text NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
    tenant          text,
    role            text NOT NULL,
    scopes          text[],
    models          text[],
    requests_per_s  double precision CHECK (requests_per_s > 0),
    created_at      timestamptz NOT NULL DEFAULT now(),
    created_by      text NOT NULL,
    expires_at      timestamptz,
    revoked_at      timestamptz,
    rotated_at      timestamptz,
    last_used_at    timestamptz,
    secret_sha256   bytea NOT NULL CHECK (length(secret_sha256) = 32),
    former_sha256   bytea CHECK (length(former_sha256) = 32),
    former_until    timestamptz,
    change          bigint NOT NULL DEFAULT nextval('hocket.api_key_change'),
    CHECK ((former_sha256 IS NULL) = (former_until IS NULL))
);

CREATE UNIQUE INDEX api_key_change_idx ON hocket.api_key (change);
CREATE INDEX api_key_tenant_idx ON hocket.api_key (tenant, created_at);

COMMENT ON TABLE hocket.api_key IS 'Keys of REST and the HTTP door; a tenant of NULL is all. Of secrets only the SHA-256 is kept.';
COMMENT ON COLUMN hocket.api_key.change IS 'Grows with each change that a door must know; processes read what is newer than they have.';

CREATE TABLE hocket.audit (
    seq         bigint PRIMARY KEY CHECK (seq > 0),
    at          timestamptz NOT NULL,
    tenant      text,
    actor       text NOT NULL,
    address     text NOT NULL,
    action      text NOT NULL,
    target      text NOT NULL,
    before      json,
    after       json,
    previous    bytea NOT NULL CHECK (length(previous) = 32),
    hash        bytea NOT NULL CHECK (length(hash) = 32)
);

CREATE INDEX audit_tenant_idx ON hocket.audit (tenant, seq);

COMMENT ON TABLE hocket.audit IS 'Who changed what, from where; each row has the hash of the one before, so that a change shows.';

CREATE TABLE hocket.audit_head (
    one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    seq     bigint NOT NULL,
    hash    bytea NOT NULL CHECK (length(hash) = 32)
);

INSERT INTO hocket.audit_head (seq, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

COMMENT ON TABLE hocket.audit_head IS 'The number and the hash of the last row of the audit; its one row is the lock of those who write.';

CREATE FUNCTION hocket.audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'hocket.audit is append-only' USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON hocket.audit
    FOR EACH ROW EXECUTE FUNCTION hocket.audit_is_append_only();
CREATE TRIGGER audit_not_emptied BEFORE TRUNCATE ON hocket.audit
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.audit_is_append_only();
