-- One table again: all rows are copied. A second request under one call id gets an id of its own again.
SET LOCAL search_path = pg_catalog; -- so that names are told in full
LOCK TABLE hocket.usage IN ACCESS EXCLUSIVE MODE;

CREATE OR REPLACE VIEW hocket.live_cost_by_run WITH (security_invoker = true) AS
SELECT r.tenant,
       r.pipeline,
       r.version,
       r.run_id,
       r.status,
       r.accepted_at,
       r.finished_at,
       extract(epoch FROM r.finished_at - r.accepted_at) * 1000 AS duration_ms,
       CASE
           WHEN r.finished_at IS NULL THEN NULL
           ELSE r.status IN ('succeeded', 'degraded') AND r.finished_at <= r.deadline_at
       END                                                      AS met_deadline,
       coalesce(u.calls, 0)                                     AS calls,
       coalesce(u.input_tokens, 0)                              AS input_tokens,
       coalesce(u.output_tokens, 0)                             AS output_tokens,
       coalesce(u.cost_usd, 0)                                  AS cost_usd,
       r.day
FROM hocket.live_run r
LEFT JOIN (SELECT tenant, run_id, count(*) AS calls, sum(input_tokens) AS input_tokens,
                  sum(output_tokens) AS output_tokens, sum(cost_usd) AS cost_usd
           FROM hocket.usage
           WHERE run_id IN (SELECT run_id FROM hocket.live_run)
           GROUP BY tenant, run_id) u USING (tenant, run_id)
UNION ALL
SELECT u.tenant, u.pipeline, u.version, u.run_id,
       CASE WHEN u.run_id ~ '^r[0-9a-f]{24}$' THEN 'deleted' ELSE 'external' END,
       u.started_at, NULL::timestamptz, NULL::numeric, NULL::boolean, u.calls, u.input_tokens, u.output_tokens,
       u.cost_usd, u.day
FROM (SELECT tenant, run_id, day, max(pipeline) AS pipeline, max(version) AS version, min(started_at) AS started_at,
             count(*) AS calls, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
             sum(cost_usd) AS cost_usd
      FROM hocket.live_usage
      WHERE run_id IS NOT NULL
      GROUP BY tenant, run_id, day) u
WHERE NOT EXISTS (SELECT FROM hocket.run r WHERE r.tenant = u.tenant AND r.run_id = u.run_id);


CREATE TABLE hocket.view_of_usage AS
SELECT DISTINCT v.oid::regclass::text AS name, pg_get_viewdef(v.oid) AS text
FROM pg_depend d
JOIN pg_rewrite r ON r.oid = d.objid
JOIN pg_class v ON v.oid = r.ev_class
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
  AND d.refobjid = 'hocket.usage'::regclass AND v.relkind = 'v';
CREATE TABLE hocket.policy_of_usage AS
SELECT policyname AS name, cmd, qual, (SELECT string_agg(quote_ident(role), ', ') FROM unnest(roles) role) AS roles
FROM pg_policies WHERE schemaname = 'hocket' AND tablename = 'usage';
CREATE TABLE hocket.grant_of_usage AS
SELECT a.grantee::regrole::text AS grantee, a.privilege_type AS kind, string_agg(quote_ident(c.attname), ', ') AS columns
FROM pg_attribute c CROSS JOIN LATERAL aclexplode(c.attacl) a
WHERE c.attrelid = 'hocket.usage'::regclass AND c.attacl IS NOT NULL AND a.grantee <> 0
GROUP BY 1, 2
UNION ALL
SELECT a.grantee::regrole::text, a.privilege_type, NULL
FROM pg_class t CROSS JOIN LATERAL aclexplode(t.relacl) a
WHERE t.oid = 'hocket.usage'::regclass AND a.grantee <> t.relowner AND a.grantee <> 0;

DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT name FROM hocket.policy_of_usage LOOP
        EXECUTE format('DROP POLICY %I ON hocket.usage', found.name);
    END LOOP;
    FOR found IN SELECT * FROM hocket.grant_of_usage LOOP
        EXECUTE format('REVOKE %s %s ON hocket.usage FROM %s', found.kind, coalesce('(' || found.columns || ')', ''),
                       found.grantee);
    END LOOP;
    FOR found IN SELECT tgname AS name FROM pg_trigger WHERE tgrelid = 'hocket.usage'::regclass AND NOT tgisinternal LOOP
        EXECUTE format('DROP TRIGGER %I ON hocket.usage', found.name);
    END LOOP;
END
$$;
DROP STATISTICS hocket.usage_day, hocket.usage_groups, hocket.usage_models;


CREATE OR REPLACE FUNCTION hocket.note_days_of_calls() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT tenant, hocket.day_of(started_at) FROM changed WHERE started_at < today
    UNION
    SELECT r.tenant, hocket.day_of(r.accepted_at)
    FROM (SELECT DISTINCT run_id FROM changed WHERE run_id IS NOT NULL) named
    CROSS JOIN LATERAL (SELECT tenant, accepted_at FROM hocket.run WHERE run_id = named.run_id OFFSET 0) r
    WHERE r.accepted_at < today
    UNION
    SELECT r.tenant, hocket.day_of(s.finished_at)
    FROM (SELECT DISTINCT run_id FROM changed WHERE run_id IS NOT NULL) named
    JOIN hocket.replayed_run replayed ON replayed.source_run_id = named.run_id
    JOIN hocket.run r ON r.run_id = replayed.run_id
    JOIN hocket.step s ON s.run_id = r.run_id
    WHERE s.finished_at < today;
    IF EXISTS (SELECT FROM changed WHERE call_id LIKE 'http:%' AND run_id IS NOT NULL) THEN
        INSERT INTO hocket.dirty_day (tenant, day)
        WITH RECURSIVE above(tenant, run_id, accepted_at) AS (
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM (SELECT DISTINCT tenant, run_id FROM changed WHERE call_id LIKE 'http:%' AND run_id IS NOT NULL) named
            JOIN hocket.run r ON r.run_id = named.run_id AND r.tenant = named.tenant
            UNION
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM above JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = above.tenant
        )
        SELECT DISTINCT tenant, hocket.day_of(accepted_at) FROM above WHERE accepted_at < today;
    END IF;
    RETURN NULL;
END
$$;
DROP TABLE hocket.stray_call;
DROP FUNCTION hocket.note_days_of_partition(text);
DROP FUNCTION hocket.cover_usage(timestamptz, integer);
DROP FUNCTION hocket.make_usage_partition(timestamptz, timestamptz);
DROP VIEW hocket.usage_partition;
DELETE FROM hocket.view_of_usage WHERE name = 'hocket.usage_partition';

ALTER TABLE hocket.usage RENAME TO usage_parts;
CREATE TABLE hocket.usage (LIKE hocket.usage_parts INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
                           INCLUDING STORAGE);
INSERT INTO hocket.usage SELECT * FROM hocket.usage_parts;
UPDATE hocket.usage u SET call_id = u.call_id || '#' || left(md5(u.started_at::text), 16)
FROM (SELECT call_id, started_at, row_number() OVER (PARTITION BY call_id ORDER BY started_at) AS place
      FROM hocket.usage) second
WHERE second.place > 1 AND u.call_id = second.call_id AND u.started_at = second.started_at;

DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT * FROM hocket.view_of_usage LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s WITH (security_invoker = true) AS %s', found.name, found.text);
    END LOOP;
    FOR found IN SELECT * FROM hocket.policy_of_usage LOOP
        EXECUTE format('CREATE POLICY %I ON hocket.usage FOR %s TO %s USING (%s)', found.name, found.cmd, found.roles,
                       found.qual);
    END LOOP;
    FOR found IN SELECT * FROM hocket.grant_of_usage LOOP
        EXECUTE format('GRANT %s %s ON hocket.usage TO %s', found.kind, coalesce('(' || found.columns || ')', ''),
                       found.grantee);
    END LOOP;
END
$$;
DROP TABLE hocket.usage_parts;
DROP TABLE hocket.view_of_usage, hocket.policy_of_usage, hocket.grant_of_usage;

COMMENT ON TABLE hocket.usage IS
    'The ledger: one row per model call, whatever became of it; the price it used stands in the row.';
ALTER TABLE hocket.usage ADD PRIMARY KEY (call_id);
CREATE INDEX usage_of_run ON hocket.usage (run_id);
CREATE INDEX usage_by_day ON hocket.usage (tenant, pipeline, started_at);
CREATE INDEX usage_by_start ON hocket.usage (started_at);
CREATE INDEX usage_by_age ON hocket.usage USING brin (recorded_at);
CREATE INDEX usage_by_label ON hocket.usage USING gin (labels jsonb_path_ops) WHERE labels IS NOT NULL;
CREATE INDEX usage_of_door ON hocket.usage (tenant, run_id) WHERE call_id LIKE 'http:%';
CREATE INDEX usage_of_experiment ON hocket.usage (experiment) WHERE experiment IS NOT NULL;
CREATE STATISTICS hocket.usage_day ON ((started_at AT TIME ZONE 'UTC')::date) FROM hocket.usage;
CREATE STATISTICS hocket.usage_groups (ndistinct)
    ON tenant, pipeline, version, node, ((started_at AT TIME ZONE 'UTC')::date), kind FROM hocket.usage;
CREATE STATISTICS hocket.usage_models (ndistinct)
    ON tenant, model, backend, ((started_at AT TIME ZONE 'UTC')::date) FROM hocket.usage;
ALTER TABLE hocket.usage ENABLE ROW LEVEL SECURITY;


CREATE TRIGGER dirty_days_new AFTER INSERT ON hocket.usage REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_changed AFTER UPDATE ON hocket.usage REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_before AFTER UPDATE ON hocket.usage REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_gone AFTER DELETE ON hocket.usage REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();

CREATE OR REPLACE FUNCTION hocket.note_days_of_runs() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    IF NOT EXISTS (SELECT FROM changed) THEN
        RETURN NULL;
    END IF;
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT c.tenant, at::date
    FROM changed c
    CROSS JOIN LATERAL generate_series(hocket.day_of(c.accepted_at)::timestamp,
        hocket.day_of(least(coalesce(c.finished_at, today), today))::timestamp, interval '1 day') AS at
    WHERE c.accepted_at < today AND at < today AT TIME ZONE 'UTC'
    UNION
    SELECT u.tenant, hocket.day_of(u.started_at)
    FROM changed c
    CROSS JOIN LATERAL (SELECT tenant, started_at FROM hocket.usage
                        WHERE run_id = c.run_id AND started_at < today OFFSET 0) u;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM hocket.replayed_run WHERE run_id IN (SELECT run_id FROM changed);
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION hocket.note_days_of_run() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT NEW.tenant, hocket.day_of(at)
    FROM unnest(ARRAY[OLD.accepted_at, NEW.accepted_at, OLD.finished_at, NEW.finished_at]) AS at
    WHERE at < today
    UNION
    SELECT tenant, hocket.day_of(started_at) FROM hocket.usage
    WHERE run_id = NEW.run_id AND NEW.status <> OLD.status AND started_at < today;
    RETURN NULL;
END
$$;
ANALYZE hocket.usage;
SET LOCAL search_path TO DEFAULT;
