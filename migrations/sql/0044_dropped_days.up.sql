-- The days of a partition that is dropped are noted from one look at its rows; which runs its calls were of is told by
-- when those ran.

CREATE FUNCTION hocket.note_dropped_days(name text) RETURNS bigint LANGUAGE plpgsql AS $$
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
COMMENT ON FUNCTION hocket.note_dropped_days(text) IS
    'Notes the days of which the calls of a partition that is to be dropped were part, and returns how many calls it has. It may note more days: those are added up from their rows once more.';
