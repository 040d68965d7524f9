-- Schedules and webhooks that are created go on from the revisions of the tenant's deleted ones: `If-Match` with a revision that
-- was read of one must not match another one of the same name.

CREATE TABLE hocket.last_revision (
    tenant   text   NOT NULL,
    kind     text   NOT NULL CHECK (kind IN ('schedule', 'webhook')),
    revision bigint NOT NULL,
    PRIMARY KEY (tenant, kind)
);
COMMENT ON TABLE hocket.last_revision IS 'The highest revision of the schedules and webhooks that were deleted.';

CREATE FUNCTION hocket.begin_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := 1 + coalesce(
        (SELECT l.revision FROM hocket.last_revision l WHERE l.tenant = NEW.tenant AND l.kind = TG_TABLE_NAME), 0);
    RETURN NEW;
END
$$;
CREATE FUNCTION hocket.keep_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO hocket.last_revision AS l (tenant, kind, revision) VALUES (OLD.tenant, TG_TABLE_NAME, OLD.revision)
    ON CONFLICT (tenant, kind) DO UPDATE SET revision = excluded.revision WHERE l.revision < excluded.revision;
    RETURN NULL;
END
$$;
CREATE TRIGGER revision_begins BEFORE INSERT ON hocket.schedule FOR EACH ROW EXECUTE FUNCTION hocket.begin_revision();
CREATE TRIGGER revision_begins BEFORE INSERT ON hocket.webhook FOR EACH ROW EXECUTE FUNCTION hocket.begin_revision();
CREATE TRIGGER revision_kept AFTER DELETE ON hocket.schedule FOR EACH ROW EXECUTE FUNCTION hocket.keep_revision();
-- a webhook that people delete loses its name at once, and its row later
CREATE TRIGGER revision_kept AFTER DELETE OR UPDATE OF name ON hocket.webhook
    FOR EACH ROW EXECUTE FUNCTION hocket.keep_revision();
