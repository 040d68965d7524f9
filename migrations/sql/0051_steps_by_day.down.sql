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

DROP TRIGGER dirty_days_of_steps ON hocket.run;
CREATE OR REPLACE FUNCTION hocket.note_days_of_last_steps() RETURNS trigger LANGUAGE plpgsql
SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO hocket.dirty_day (tenant, day)
    SELECT DISTINCT OLD.tenant, hocket.day_of(finished_at)
    FROM hocket.step WHERE run_id = OLD.run_id AND finished_at < hocket.today();
    RETURN OLD;
END
$$;
CREATE TRIGGER dirty_days_of_steps BEFORE DELETE ON hocket.run
    FOR EACH ROW EXECUTE FUNCTION hocket.note_days_of_last_steps();

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
            INSERT INTO hocket.dirty_day (tenant, day)
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
INSERT INTO hocket.dirty_day (tenant, day) SELECT DISTINCT tenant, day FROM hocket.stale_day;
DROP TABLE hocket.stale_day;

DROP TRIGGER placed ON hocket.step;
DROP TRIGGER placed ON hocket.attempt;
DO $$
DECLARE
    days   record;
    policy record;
BEGIN
    FOR days IN SELECT suffix FROM hocket.step_days WHERE suffix <> '' LOOP
        EXECUTE format('ALTER TABLE hocket.step_%s NO INHERIT hocket.step', days.suffix);
        EXECUTE format('ALTER TABLE hocket.attempt_%s NO INHERIT hocket.attempt', days.suffix);
        EXECUTE format('INSERT INTO hocket.step SELECT s.* FROM hocket.step_%s s JOIN hocket.run USING (run_id)'
                       ' ON CONFLICT DO NOTHING', days.suffix);
        EXECUTE format('INSERT INTO hocket.attempt SELECT a.* FROM hocket.attempt_%s a'
                       ' WHERE EXISTS (SELECT FROM hocket.run r WHERE r.run_id = a.run_id) ON CONFLICT DO NOTHING',
                       days.suffix);
        EXECUTE format('DROP TABLE hocket.step_%1$s, hocket.attempt_%1$s', days.suffix);
    END LOOP;
    FOR policy IN SELECT policyname, tablename FROM pg_policies
                  WHERE schemaname = 'hocket' AND tablename IN ('step', 'attempt') LOOP
        EXECUTE format('DROP POLICY %I ON hocket.%I', policy.policyname, policy.tablename);
    END LOOP;
END
$$;
CREATE POLICY report_run ON hocket.step FOR SELECT TO hocket_report
    USING (EXISTS (SELECT FROM hocket.run r WHERE r.run_id = step.run_id));
CREATE POLICY report_run ON hocket.attempt FOR SELECT TO hocket_report
    USING (EXISTS (SELECT FROM hocket.run r WHERE r.run_id = attempt.run_id));
DROP FUNCTION hocket.place_step(), hocket.place_attempt(), hocket.cover_steps(timestamptz, integer),
    hocket.make_step_days(timestamptz, timestamptz), hocket.refuse_delete();
DROP TABLE hocket.step_days;
ALTER TABLE hocket.attempt DROP COLUMN tenant;
ALTER TABLE hocket.step DROP COLUMN tenant;
