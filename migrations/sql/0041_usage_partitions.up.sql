-- The ledger's rows are kept in partitions by the time that their calls began, so that retention drops what is old where
-- it deleted it row by row. The table of before becomes the partition of all that began until now: docs/decisions/0021.
SET LOCAL search_path = pg_catalog; -- so that names are told in full
LOCK TABLE hocket.usage IN ACCESS EXCLUSIVE MODE;

-- What hangs on the table is taken along ------------------------------------------------------------------------------------

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

-- A second request under one call id stood under an id of its own (ID#HASH). What tells requests apart is the time now: its
-- id is its own again, so that its record, should it come once more, is known.
ALTER TABLE hocket.usage DROP CONSTRAINT usage_pkey;
ALTER TABLE hocket.usage ADD PRIMARY KEY (call_id, started_at);
UPDATE hocket.usage u SET call_id = left(u.call_id, -17)
FROM (SELECT DISTINCT ON (left(call_id, -17), started_at) call_id
      FROM hocket.usage WHERE call_id ~ '#[0-9a-f]{16}$') second
WHERE u.call_id = second.call_id
  AND EXISTS (SELECT FROM hocket.usage o WHERE o.call_id = left(u.call_id, -17) AND o.started_at <> u.started_at);

-- The table of before is a partition ------------------------------------------------------------------------------------------

ALTER TABLE hocket.usage RENAME TO usage_before;
DO $$
DECLARE found record;
BEGIN
    FOR found IN SELECT indexrelid::regclass AS name, replace(relname, 'usage', 'usage_before') AS renamed
                 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
                 WHERE indrelid = 'hocket.usage_before'::regclass LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', found.name, found.renamed);
    END LOOP;
END
$$;
CREATE TABLE hocket.usage (LIKE hocket.usage_before INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING COMMENTS
                           INCLUDING STORAGE) PARTITION BY RANGE (started_at);
COMMENT ON TABLE hocket.usage IS
    'The ledger: one row per model call, whatever became of it; the price it used stands in the row. In partitions by the time that calls began.';
ALTER TABLE hocket.usage ADD PRIMARY KEY (call_id, started_at);
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

CREATE VIEW hocket.usage_partition AS
SELECT c.oid AS id, c.relname::text AS name,
       CASE WHEN bound LIKE 'FOR VALUES FROM (MINVALUE)%' THEN '-infinity'
            ELSE substring(bound FROM $$FROM \('([^']+)'\)$$)::timestamptz END AS from_at,
       CASE WHEN bound LIKE '%TO (MAXVALUE)' THEN 'infinity'
            ELSE substring(bound FROM $$TO \('([^']+)'\)$$)::timestamptz END AS to_at
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
CROSS JOIN LATERAL pg_get_expr(c.relpartbound, c.oid) AS bound
WHERE i.inhparent = 'hocket.usage'::regclass;
COMMENT ON VIEW hocket.usage_partition IS 'The partitions of hocket.usage: calls that began in from_at <= t < to_at.';

CREATE FUNCTION hocket.make_usage_partition(from_at timestamptz, to_at timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name CONSTANT text := CASE WHEN from_at = '-infinity' THEN 'usage_before'
                               ELSE 'usage_' || to_char(from_at AT TIME ZONE 'UTC', 'YYYYMMDD') END;
BEGIN
    -- made, and then attached: that waits for nobody who reads or writes others
    EXECUTE format('CREATE TABLE hocket.%I (LIKE hocket.usage INCLUDING ALL)', name);
    EXECUTE format('ALTER TABLE hocket.usage ATTACH PARTITION hocket.%I FOR VALUES FROM (%s) TO (%s)', name,
                   CASE WHEN from_at = '-infinity' THEN 'MINVALUE' ELSE quote_literal(from_at) END,
                   CASE WHEN to_at = 'infinity' THEN 'MAXVALUE' ELSE quote_literal(to_at) END);
END
$$;

CREATE FUNCTION hocket.cover_usage(at timestamptz, days integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    today CONSTANT timestamptz := date_trunc('day', clock_timestamp(), 'UTC');
    lower_at timestamptz;
    upper_at timestamptz;
    start_at timestamptz;
    width    interval := make_interval(days => days);
BEGIN
    PERFORM pg_advisory_xact_lock(29395870372880754);
    IF EXISTS (SELECT FROM hocket.usage_partition WHERE from_at <= at AND at < to_at) THEN
        RETURN false;
    END IF;
    lower_at := coalesce((SELECT max(to_at) FROM hocket.usage_partition WHERE to_at <= at), '-infinity');
    upper_at := coalesce((SELECT min(from_at) FROM hocket.usage_partition WHERE from_at > at), 'infinity');
    IF at < today THEN
        upper_at := least(upper_at, today);
    ELSE
        IF at > today + interval '400 days' THEN
            start_at := date_trunc('year', at, 'UTC');
            width := interval '1 year';
        ELSE
            start_at := date_bin(width, at, '2001-01-01 00:00+00');
        END IF;
        lower_at := greatest(lower_at, start_at);
        upper_at := least(upper_at, start_at + width);
    END IF;
    PERFORM hocket.make_usage_partition(lower_at, upper_at);
    RETURN true;
END
$$;
COMMENT ON FUNCTION hocket.cover_usage(timestamptz, integer) IS
    'Makes the partition for calls that began at a moment, so many days wide; false where there is one. One for what is past has all that no other one has, one for what is more than 400 days away a year.';

DO $$
DECLARE
    today CONSTANT timestamptz := date_trunc('day', clock_timestamp(), 'UTC');
    ends  timestamptz := today;
    found record;
BEGIN
    IF EXISTS (SELECT FROM hocket.usage_before WHERE started_at >= today) THEN
        ends := today + interval '1 day';
    END IF;
    -- of gateways whose clocks were ahead
    CREATE TABLE hocket.later_usage AS SELECT * FROM hocket.usage_before WHERE started_at >= ends;
    DELETE FROM hocket.usage_before WHERE started_at >= ends;
    EXECUTE format('ALTER TABLE hocket.usage ATTACH PARTITION hocket.usage_before FOR VALUES FROM (MINVALUE) TO (%L)', ends);
    PERFORM hocket.cover_usage(ends, 1);
    FOR found IN SELECT DISTINCT date_trunc('day', started_at, 'UTC') AS at FROM hocket.later_usage LOOP
        PERFORM hocket.cover_usage(found.at, 1);
    END LOOP;
    INSERT INTO hocket.usage SELECT * FROM hocket.later_usage;

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
    IF EXISTS (SELECT FROM pg_depend WHERE refclassid = 'pg_class'::regclass
               AND refobjid = 'hocket.usage_before'::regclass AND classid = 'pg_rewrite'::regclass) THEN
        RAISE EXCEPTION 'something still reads hocket.usage_before';
    END IF;
END
$$;

CREATE TRIGGER dirty_days_new AFTER INSERT ON hocket.usage REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_changed AFTER UPDATE ON hocket.usage REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_before AFTER UPDATE ON hocket.usage REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();
CREATE TRIGGER dirty_days_gone AFTER DELETE ON hocket.usage REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION hocket.note_days_of_calls();

-- Runs look for their calls in the partitions of their days ---------------------------------------------------------------------

CREATE TABLE hocket.stray_call (
    call_id    text        NOT NULL,
    started_at timestamptz NOT NULL,
    run_id     text        NOT NULL,
    PRIMARY KEY (call_id, started_at)
);
CREATE INDEX stray_call_of_run ON hocket.stray_call (run_id);
COMMENT ON TABLE hocket.stray_call IS
    'Calls that began, as their gateway told, more than a day before their run was accepted, or before it was known: the others of a run are in the partitions of its days.';
INSERT INTO hocket.stray_call (call_id, started_at, run_id)
SELECT u.call_id, u.started_at, u.run_id FROM hocket.usage u JOIN hocket.run r USING (run_id)
WHERE u.started_at < r.accepted_at - interval '1 day';
ALTER TABLE hocket.stray_call ENABLE ROW LEVEL SECURITY;
CREATE POLICY report_run ON hocket.stray_call FOR SELECT TO hocket_report
    USING (EXISTS (SELECT FROM hocket.run r WHERE r.run_id = stray_call.run_id));
GRANT SELECT ON hocket.stray_call TO hocket_report;

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
LEFT JOIN LATERAL (
    SELECT count(*) AS calls, sum(u.input_tokens) AS input_tokens, sum(u.output_tokens) AS output_tokens,
           sum(u.cost_usd) AS cost_usd
    FROM (SELECT input_tokens, output_tokens, cost_usd FROM hocket.usage
          WHERE run_id = r.run_id AND tenant = r.tenant AND started_at >= r.accepted_at - interval '1 day'
          UNION ALL
          SELECT u.input_tokens, u.output_tokens, u.cost_usd
          FROM hocket.stray_call s
          JOIN hocket.usage u ON u.call_id = s.call_id AND u.started_at = s.started_at
          WHERE s.run_id = r.run_id AND u.tenant = r.tenant
            AND s.started_at < r.accepted_at - interval '1 day') u
) u ON true
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

CREATE OR REPLACE FUNCTION hocket.note_days_of_calls() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE today CONSTANT timestamptz := hocket.today();
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM hocket.stray_call s USING changed c WHERE s.call_id = c.call_id AND s.started_at = c.started_at;
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO hocket.stray_call (run_id, call_id, started_at)
        SELECT c.run_id, c.call_id, c.started_at
        FROM changed c
        WHERE c.run_id ~ '^r[0-9a-f]{24}$' AND NOT EXISTS (
            SELECT FROM hocket.run r
            WHERE r.run_id = c.run_id AND c.started_at >= r.accepted_at - interval '1 day')
        ON CONFLICT DO NOTHING;
    END IF;
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

-- as before, but for `since` and stray calls
CREATE OR REPLACE FUNCTION hocket.note_days_of_runs() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    today CONSTANT timestamptz := hocket.today();
    since timestamptz;
BEGIN
    since := (SELECT min(accepted_at) FROM changed) - interval '1 day';
    IF since IS NULL THEN
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
                        WHERE run_id = c.run_id AND started_at < today AND started_at >= since OFFSET 0) u
    UNION
    SELECT c.tenant, hocket.day_of(s.started_at) FROM changed c JOIN hocket.stray_call s USING (run_id)
    WHERE s.started_at < today;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM hocket.replayed_run WHERE run_id IN (SELECT run_id FROM changed);
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION hocket.note_days_of_run() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    today CONSTANT timestamptz := hocket.today();
    since CONSTANT timestamptz := least(NEW.accepted_at, OLD.accepted_at) - interval '1 day';
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT NEW.tenant, hocket.day_of(at)
    FROM unnest(ARRAY[OLD.accepted_at, NEW.accepted_at, OLD.finished_at, NEW.finished_at]) AS at
    WHERE at < today
    UNION
    SELECT tenant, hocket.day_of(started_at) FROM hocket.usage
    WHERE run_id = NEW.run_id AND NEW.status <> OLD.status AND started_at < today AND started_at >= since
    UNION
    SELECT NEW.tenant, hocket.day_of(started_at) FROM hocket.stray_call
    WHERE run_id = NEW.run_id AND NEW.status <> OLD.status AND started_at < today;
    RETURN NULL;
END
$$;

-- Sums of a partition that is dropped ------------------------------------------------------------------------------------------

CREATE FUNCTION hocket.note_days_of_partition(name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($sql$
        WITH RECURSIVE named AS MATERIALIZED (
            SELECT DISTINCT tenant, run_id FROM hocket.%1$I WHERE run_id IS NOT NULL
        ), known AS MATERIALIZED (
            SELECT r.tenant, r.run_id, r.accepted_at, r.parent ->> 'run_id' AS parent
            FROM named JOIN hocket.run r USING (run_id)
        ), above(tenant, run_id, accepted_at) AS (
            SELECT tenant, parent, accepted_at FROM known
            UNION
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM above JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = above.tenant
        )
        INSERT INTO hocket.dirty_day (tenant, day)
        SELECT tenant, hocket.day_of(started_at) FROM hocket.%1$I GROUP BY 1, 2
        UNION
        SELECT tenant, hocket.day_of(accepted_at) FROM above
        UNION
        SELECT r.tenant, hocket.day_of(s.finished_at)
        FROM named
        JOIN hocket.replayed_run replayed ON replayed.source_run_id = named.run_id
        JOIN hocket.run r ON r.run_id = replayed.run_id
        JOIN hocket.step s ON s.run_id = r.run_id
        WHERE s.finished_at IS NOT NULL
    $sql$, name);
    EXECUTE format('DELETE FROM hocket.stray_call s USING hocket.%I u'
                   ' WHERE s.call_id = u.call_id AND s.started_at = u.started_at', name);
END
$$;
COMMENT ON FUNCTION hocket.note_days_of_partition(text) IS
    'Notes the days of which the calls of a partition, that is to be dropped, were part.';
DROP TABLE hocket.view_of_usage, hocket.policy_of_usage, hocket.grant_of_usage, hocket.later_usage;
ANALYZE hocket.usage;
SET LOCAL search_path TO DEFAULT;
