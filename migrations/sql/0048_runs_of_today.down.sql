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
