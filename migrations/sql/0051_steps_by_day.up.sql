-- Steps and attempts are kept by the day on which their run was accepted, so that retention drops what is old where it
-- deleted it row by row. `hocket.step` and `hocket.attempt` are the parents of a table for each span of days: what reads
-- them reads all. Their rows have their tenant, too, so that row-level security asks no run: docs/decisions/0025.

ALTER TABLE hocket.step ADD COLUMN tenant text;
ALTER TABLE hocket.attempt ADD COLUMN tenant text;
COMMENT ON COLUMN hocket.step.tenant IS 'That of its run; rows of before this column have none.';
COMMENT ON COLUMN hocket.attempt.tenant IS 'That of its run; rows of before this column have none.';

CREATE TABLE hocket.step_days (
    suffix  text        PRIMARY KEY,
    from_at timestamptz NOT NULL,
    to_at   timestamptz NOT NULL,
    CHECK (from_at < to_at)
);
COMMENT ON TABLE hocket.step_days IS
    'Which tables have the steps and attempts of runs that were accepted in from_at <= t < to_at: step_SUFFIX and attempt_SUFFIX; without a suffix, and for all other times, step and attempt themselves.';
-- where runs are there, those of this day have rows already
INSERT INTO hocket.step_days (suffix, from_at, to_at)
SELECT '', '-infinity', date_trunc('day', clock_timestamp(), 'UTC')
    + CASE WHEN EXISTS (SELECT FROM hocket.run) THEN interval '1 day' ELSE interval '-2 days' END;

CREATE FUNCTION hocket.make_step_days(from_at timestamptz, to_at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    suffix CONSTANT text := to_char(from_at AT TIME ZONE 'UTC', 'YYYYMMDD');
    parent text;
    found  record;
BEGIN
    FOREACH parent IN ARRAY ARRAY['step', 'attempt'] LOOP
        EXECUTE format('CREATE TABLE hocket.%1$s_%2$s (LIKE hocket.%1$s INCLUDING ALL)', parent, suffix);
        EXECUTE format('ALTER TABLE hocket.%s_%s ENABLE ROW LEVEL SECURITY', parent, suffix);
        -- those of each row; triggers of statements are their parent's
        FOR found IN SELECT pg_get_triggerdef(oid) AS text FROM pg_trigger
                     WHERE tgrelid = ('hocket.' || parent)::regclass AND NOT tgisinternal AND tgtype & 1 = 1
                       AND tgname <> 'placed' LOOP
            EXECUTE replace(found.text, ' ON hocket.' || parent || ' ', format(' ON hocket.%s_%s ', parent, suffix));
        END LOOP;
        EXECUTE format('CREATE TRIGGER guarded BEFORE DELETE ON hocket.%s_%s FOR EACH ROW'
                       ' WHEN (current_setting(''hocket.deletes'', true) IS DISTINCT FROM ''on'')'
                       ' EXECUTE FUNCTION hocket.refuse_delete()', parent, suffix);
        EXECUTE format('ALTER TABLE hocket.%1$s_%2$s INHERIT hocket.%1$s', parent, suffix);
    END LOOP;
    INSERT INTO hocket.step_days (suffix, from_at, to_at) VALUES (suffix, from_at, to_at);
    RETURN suffix;
END
$$;

CREATE FUNCTION hocket.cover_steps(at timestamptz, days integer DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    today CONSTANT timestamptz := date_trunc('day', clock_timestamp(), 'UTC');
    found    text;
    lower_at timestamptz;
    upper_at timestamptz;
BEGIN
    found := (SELECT suffix FROM hocket.step_days WHERE from_at <= at AND at < to_at);
    -- what is as old has none, or has none any more
    IF found IS NOT NULL OR at < today - interval '2 days' THEN
        RETURN coalesce(found, '');
    END IF;
    PERFORM pg_advisory_xact_lock(29395870372880757);
    found := (SELECT suffix FROM hocket.step_days WHERE from_at <= at AND at < to_at);
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    lower_at := date_bin(make_interval(days => days), at, '2001-01-01 00:00+00');
    upper_at := lower_at + make_interval(days => days);
    lower_at := greatest(lower_at, today - interval '2 days',
                         (SELECT max(to_at) FROM hocket.step_days WHERE to_at <= at));
    upper_at := least(upper_at, (SELECT min(from_at) FROM hocket.step_days WHERE from_at > at));
    RETURN hocket.make_step_days(lower_at, upper_at);
END
$$;
COMMENT ON FUNCTION hocket.cover_steps(timestamptz, integer) IS
    'The suffix of the tables that have the steps and attempts of runs that were accepted at a moment; they are made, so many days wide, where there are none. Of runs that are older than two days and have none: nothing, which means the parents.';

-- Processes of the release before ----------------------------------------------------------------------------------------------

-- they write into the parent, and delete by a place that is not unique among children
CREATE FUNCTION hocket.refuse_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are deleted by hocket, by name', TG_TABLE_NAME
        USING HINT = 'Use `hocket data delete`. For a session that knows what it does: SET hocket.deletes = ''on''.';
END
$$;
CREATE FUNCTION hocket.place_step() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    suffix text;
BEGIN
    SELECT hocket.cover_steps(r.accepted_at), coalesce(NEW.tenant, r.tenant) INTO suffix, NEW.tenant
    FROM hocket.run r WHERE r.run_id = NEW.run_id;
    IF coalesce(suffix, '') = '' THEN
        RETURN NEW;
    END IF;
    EXECUTE format($sql$
        INSERT INTO hocket.step_%s AS step SELECT ($1).*
        ON CONFLICT (run_id, key) DO UPDATE SET
            input = coalesce(excluded.input, step.input), deadline_at = coalesce(excluded.deadline_at, step.deadline_at),
            slack_ms = coalesce(excluded.slack_ms, step.slack_ms), role = excluded.role, parent = excluded.parent,
            state = excluded.state, attempt = excluded.attempt, output = excluded.output, error = excluded.error,
            ready_at = excluded.ready_at, dispatched_at = excluded.dispatched_at, started_at = excluded.started_at,
            finished_at = excluded.finished_at, wake_at = excluded.wake_at, worker = excluded.worker,
            facts = excluded.facts, queued_at = excluded.queued_at, took_ms = excluded.took_ms
    $sql$, suffix) USING NEW;
    RETURN NULL;
END
$$;
CREATE FUNCTION hocket.place_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    suffix text;
BEGIN
    SELECT hocket.cover_steps(r.accepted_at), coalesce(NEW.tenant, r.tenant) INTO suffix, NEW.tenant
    FROM hocket.run r WHERE r.run_id = NEW.run_id;
    IF coalesce(suffix, '') = '' THEN
        RETURN NEW;
    END IF;
    EXECUTE format('INSERT INTO hocket.attempt_%s SELECT ($1).* ON CONFLICT DO NOTHING', suffix) USING NEW;
    RETURN NULL;
END
$$;
CREATE TRIGGER placed BEFORE INSERT ON hocket.step FOR EACH ROW EXECUTE FUNCTION hocket.place_step();
CREATE TRIGGER placed BEFORE INSERT ON hocket.attempt FOR EACH ROW EXECUTE FUNCTION hocket.place_attempt();

-- Who may read -------------------------------------------------------------------------------------------------------------------

DROP POLICY report_run ON hocket.step;
DROP POLICY report_run ON hocket.attempt;
CREATE POLICY report_tenant ON hocket.step FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant())
           OR tenant IS NULL AND EXISTS (SELECT FROM hocket.run r WHERE r.run_id = step.run_id));
CREATE POLICY report_tenant ON hocket.attempt FOR SELECT TO hocket_report
    USING (tenant = (SELECT hocket.report_tenant())
           OR tenant IS NULL AND EXISTS (SELECT FROM hocket.run r WHERE r.run_id = attempt.run_id));
GRANT SELECT (tenant) ON hocket.step, hocket.attempt TO hocket_report;

-- Days of which rows were dropped ---------------------------------------------------------------------------------------------

CREATE TABLE hocket.stale_day (
    tenant text NOT NULL,
    day    date NOT NULL
);
COMMENT ON TABLE hocket.stale_day IS
    'Days whose rollup still has what retention has dropped: reports show them as they were until the ledger has rolled them up again. Unlike those of hocket.dirty_day, nobody adds up their rows meanwhile.';

DO $$
DECLARE login record;
BEGIN
    FOR login IN SELECT policyname, roles[1] AS name FROM pg_policies
                 WHERE schemaname = 'hocket' AND tablename = 'usage' AND policyname LIKE 'report\_all\_%' LOOP
        EXECUTE format('DROP POLICY IF EXISTS %I ON hocket.step', login.policyname);
        EXECUTE format('DROP POLICY IF EXISTS %I ON hocket.attempt', login.policyname);
        EXECUTE format('CREATE POLICY %I ON hocket.step FOR SELECT TO %I USING (true)', login.policyname, login.name);
        EXECUTE format('CREATE POLICY %I ON hocket.attempt FOR SELECT TO %I USING (true)', login.policyname, login.name);
    END LOOP;
END
$$;

-- as before, but for runs that go by whole days
CREATE OR REPLACE FUNCTION hocket.note_days_of_runs() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    today CONSTANT timestamptz := hocket.today();
    since timestamptz;
BEGIN
    since := (SELECT min(accepted_at) FROM changed) - interval '1 day';
    IF since IS NULL
       OR TG_OP = 'INSERT' AND since >= today - interval '23 hours'
          AND NOT EXISTS (SELECT FROM hocket.stray_call) THEN
        RETURN NULL;
    END IF;
    IF TG_OP = 'DELETE' AND current_setting('hocket.retention', true) = 'on' THEN
        -- the runs of whole days: their calls are looked for where their clocks may have put them
        INSERT INTO hocket.stale_day (tenant, day)
        SELECT c.tenant, at::date
        FROM (SELECT DISTINCT tenant, hocket.day_of(accepted_at) AS first, hocket.day_of(finished_at) AS latest
              FROM changed) c
        CROSS JOIN LATERAL generate_series(c.first::timestamp, c.latest::timestamp, interval '1 day') AS at
        UNION
        SELECT c.tenant, hocket.day_of(u.started_at)
        FROM (SELECT run_id, tenant, date_trunc('day', accepted_at, 'UTC') AS ends FROM changed
              WHERE accepted_at < date_trunc('day', accepted_at, 'UTC') + interval '1 hour') c
        CROSS JOIN LATERAL (SELECT started_at FROM hocket.usage
                            WHERE run_id = c.run_id AND started_at < c.ends AND started_at >= c.ends - interval '1 hour'
                            OFFSET 0) u
        UNION
        SELECT c.tenant, hocket.day_of(u.started_at)
        FROM (SELECT run_id, tenant, date_trunc('day', finished_at, 'UTC') + interval '1 day' AS begins FROM changed
              WHERE finished_at >= date_trunc('day', finished_at, 'UTC') + interval '23 hours') c
        CROSS JOIN LATERAL (SELECT started_at FROM hocket.usage
                            WHERE run_id = c.run_id AND started_at >= c.begins AND started_at < c.begins + interval '1 hour'
                            OFFSET 0) u
        UNION
        SELECT c.tenant, hocket.day_of(s.started_at) FROM changed c JOIN hocket.stray_call s USING (run_id);
        DELETE FROM hocket.replayed_run WHERE run_id IN (SELECT run_id FROM changed);
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

-- what goes with a run: of the parents by their foreign key, of a day's tables by this; only a superuser may give a
-- function a parameter such as hocket.deletes, so that it is set, and put back, within
CREATE OR REPLACE FUNCTION hocket.note_days_of_last_steps() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
DECLARE
    suffix  CONSTANT text := (SELECT d.suffix FROM hocket.step_days d
                              WHERE d.from_at <= OLD.accepted_at AND OLD.accepted_at < d.to_at);
    deletes CONSTANT text := coalesce(current_setting('hocket.deletes', true), '');
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT OLD.tenant, hocket.day_of(finished_at)
    FROM ONLY hocket.step WHERE run_id = OLD.run_id AND finished_at < hocket.today();
    IF suffix <> '' THEN
        PERFORM set_config('hocket.deletes', 'on', true);
        EXECUTE format('WITH gone AS (DELETE FROM hocket.step_%s WHERE run_id = $1 RETURNING finished_at)'
                       ' INSERT INTO hocket.dirty_day (tenant, day)'
                       ' SELECT DISTINCT $2, hocket.day_of(finished_at) FROM gone WHERE finished_at < hocket.today()',
                       suffix) USING OLD.run_id, OLD.tenant;
        EXECUTE format('DELETE FROM hocket.attempt_%s WHERE run_id = $1', suffix) USING OLD.run_id;
        PERFORM set_config('hocket.deletes', deletes, true);
    END IF;
    RETURN OLD;
END
$$;
DROP TRIGGER dirty_days_of_steps ON hocket.run;
CREATE TRIGGER dirty_days_of_steps BEFORE DELETE ON hocket.run FOR EACH ROW
    WHEN (current_setting('hocket.retention', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION hocket.note_days_of_last_steps();

-- as before, but that reports do not add up the rows of these days meanwhile
CREATE OR REPLACE FUNCTION hocket.note_dropped_days(name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first  timestamptz;
    latest timestamptz;
    number bigint;
BEGIN
    EXECUTE format('SELECT min(started_at), max(started_at) FROM hocket.%I', name) INTO first, latest;
    IF first IS NULL THEN
        RETURN 0;
    END IF;
    EXECUTE format($sql$
        WITH RECURSIVE days AS (
            SELECT tenant, hocket.day_of(started_at) AS day, count(*) AS calls FROM hocket.%1$I GROUP BY 1, 2
        ), ran AS MATERIALIZED (
            SELECT r.tenant, r.accepted_at, r.parent
            FROM hocket.run r
            WHERE r.accepted_at <= $2 + interval '1 day'
              AND (r.finished_at IS NULL OR r.finished_at >= $1 - interval '1 day')
              AND r.tenant IN (SELECT tenant FROM days)
            UNION ALL
            SELECT r.tenant, r.accepted_at, r.parent
            FROM hocket.stray_call s JOIN hocket.run r USING (run_id)
            WHERE s.started_at BETWEEN $1 AND $2
        ), above(tenant, run_id, accepted_at) AS (
            SELECT DISTINCT tenant, parent ->> 'run_id', accepted_at FROM ran WHERE parent IS NOT NULL
            UNION
            SELECT r.tenant, r.parent ->> 'run_id', r.accepted_at
            FROM above JOIN hocket.run r ON r.run_id = above.run_id AND r.tenant = above.tenant
        ), noted AS (
            INSERT INTO hocket.stale_day (tenant, day)
            SELECT tenant, day FROM days
            UNION
            -- of runs that may have had these calls, and of those above them
            SELECT tenant, hocket.day_of(accepted_at) FROM ran
            UNION
            SELECT tenant, hocket.day_of(accepted_at) FROM above
            UNION
            -- of steps that were taken over from such a run
            SELECT r.tenant, hocket.day_of(s.finished_at)
            FROM hocket.replayed_run replayed
            JOIN hocket.run r ON r.run_id = replayed.run_id
            JOIN hocket.step s ON s.run_id = r.run_id
            WHERE s.finished_at IS NOT NULL
              AND EXISTS (SELECT FROM hocket.%1$I u WHERE u.run_id = replayed.source_run_id)
        )
        SELECT sum(calls) FROM days
    $sql$, name) USING first, latest INTO number;
    EXECUTE format('DELETE FROM hocket.stray_call s USING hocket.%I u WHERE s.started_at BETWEEN $1 AND $2'
                   ' AND s.call_id = u.call_id AND s.started_at = u.started_at', name) USING first, latest;
    RETURN number;
END
$$;
