-- A day of the tables by day, and of views and triggers, has 24 hours also where the time zone of the session has summer
-- time: `+ interval '1 day'` follows that zone.

-- as Postgres writes the text of views
SET LOCAL intervalstyle = 'postgres';
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT c.oid::regclass AS name, pg_get_viewdef(c.oid) AS text, array_to_string(c.reloptions, ', ') AS options
                 FROM pg_class c
                 WHERE c.oid = ANY (ARRAY['hocket.live_cost_by_own_run', 'hocket.live_cost_by_other_run',
                                          'hocket.live_experiments', 'hocket.live_run_budgets', 'hocket.live_waste',
                                          'report.experiment_results']::regclass[]) LOOP
        IF strpos(found.text, $sql$'1 day'::interval$sql$) = 0 THEN
            RAISE EXCEPTION 'the view % is not that of this release: its text has no interval of 1 day', found.name;
        END IF;
        EXECUTE format('CREATE OR REPLACE VIEW %s WITH (%s) AS %s', found.name, found.options,
                       replace(found.text, $sql$'1 day'::interval$sql$, $sql$'24:00:00'::interval$sql$));
    END LOOP;
    FOR found IN SELECT oid::regproc AS name, pg_get_functiondef(oid) AS text FROM pg_proc
                 WHERE oid = ANY (ARRAY['hocket.kind_in_run', 'hocket.note_days_of_calls', 'hocket.note_days_of_run',
                                        'hocket.note_days_of_runs', 'hocket.note_dropped_days']::regproc[]) LOOP
        -- as it was written, or as Postgres writes it
        IF strpos(found.text, $sql$interval '1 day'$sql$) + strpos(found.text, $sql$'1 day'::interval$sql$) = 0 THEN
            RAISE EXCEPTION 'the function % is not that of this release: its text has no interval of 1 day', found.name;
        END IF;
        EXECUTE replace(replace(found.text, $sql$interval '1 day'$sql$, $sql$interval '24 hours'$sql$),
                        $sql$'1 day'::interval$sql$, $sql$'24:00:00'::interval$sql$);
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION hocket.cover_steps(at timestamptz, days integer DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    today CONSTANT timestamptz := date_trunc('day', clock_timestamp(), 'UTC');
    found    text;
    lower_at timestamptz;
    upper_at timestamptz;
BEGIN
    found := (SELECT suffix FROM hocket.step_days WHERE from_at <= at AND at < to_at);
    -- what is as old has none, or has none any more
    IF found IS NOT NULL OR at < today - interval '48 hours' THEN
        RETURN coalesce(found, '');
    END IF;
    PERFORM pg_advisory_xact_lock(29395870372880757);
    found := (SELECT suffix FROM hocket.step_days WHERE from_at <= at AND at < to_at);
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    lower_at := date_bin(make_interval(days => days), at, '2001-01-01 00:00+00');
    upper_at := lower_at + days * interval '24 hours';
    lower_at := greatest(lower_at, today - interval '48 hours',
                         (SELECT max(to_at) FROM hocket.step_days WHERE to_at <= at));
    upper_at := least(upper_at, (SELECT min(from_at) FROM hocket.step_days WHERE from_at > at));
    RETURN hocket.make_step_days(lower_at, upper_at);
END
$$;

-- Tables that ended within a day of UTC get its rest: coordinators have put all runs of a day where its first moment belongs.
DO $$
DECLARE
    found record;
    kind  text;
BEGIN
    PERFORM pg_advisory_xact_lock(29395870372880757);
    FOR found IN
        SELECT d.suffix, coalesce('_' || nullif(prior.suffix, ''), '') AS prior,
               greatest(d.from_at, date_trunc('day', prior.to_at + interval '23:59:59.999999', 'UTC')) AS begins,
               date_trunc('day', d.to_at + interval '23:59:59.999999', 'UTC') AS ends
        FROM hocket.step_days d
        LEFT JOIN LATERAL (SELECT p.suffix, p.to_at FROM hocket.step_days p WHERE p.to_at <= d.from_at
                           ORDER BY p.to_at DESC LIMIT 1) prior ON true
        ORDER BY d.from_at
    LOOP
        IF found.begins < found.ends THEN
            UPDATE hocket.step_days SET from_at = found.begins, to_at = found.ends WHERE suffix = found.suffix;
            CONTINUE;
        END IF;
        -- with no first moment of a day, it has only what the trigger `placed` has put there
        DELETE FROM hocket.step_days WHERE suffix = found.suffix;
        FOREACH kind IN ARRAY ARRAY['step', 'attempt'] LOOP
            EXECUTE format('INSERT INTO hocket.%1$s%2$s SELECT * FROM hocket.%1$s_%3$s'
                           ' WHERE run_id IN (SELECT run_id FROM hocket.run) ON CONFLICT DO NOTHING',
                           kind, found.prior, found.suffix);
            EXECUTE format('DROP TABLE hocket.%s_%s', kind, found.suffix);
        END LOOP;
    END LOOP;
END
$$;

-- bounds are written and read as text, in the zone and the style of the session
ALTER FUNCTION hocket.cover_usage(timestamptz, integer) SET timezone = 'UTC';
ALTER FUNCTION hocket.cover_usage(timestamptz, integer) SET datestyle = 'ISO, MDY';

CREATE OR REPLACE FUNCTION hocket.make_usage_partition(from_at timestamptz, to_at timestamptz) RETURNS void LANGUAGE plpgsql
SET timezone = 'UTC' SET datestyle = 'ISO, MDY' AS $$
DECLARE
    -- the one before may have ended within the day
    form CONSTANT text := CASE WHEN from_at = date_trunc('day', from_at, 'UTC') THEN 'YYYYMMDD' ELSE 'YYYYMMDDHH24MI' END;
    name CONSTANT text := CASE WHEN from_at = '-infinity' THEN 'usage_before'
                               ELSE 'usage_' || to_char(from_at AT TIME ZONE 'UTC', form) END;
BEGIN
    -- made, and then attached: that waits for nobody who reads or writes others
    EXECUTE format('CREATE TABLE hocket.%I (LIKE hocket.usage INCLUDING ALL)', name);
    EXECUTE format('ALTER TABLE hocket.usage ATTACH PARTITION hocket.%I FOR VALUES FROM (%s) TO (%s)', name,
                   CASE WHEN from_at = '-infinity' THEN 'MINVALUE' ELSE quote_literal(from_at) END,
                   CASE WHEN to_at = 'infinity' THEN 'MAXVALUE' ELSE quote_literal(to_at) END);
END
$$;
